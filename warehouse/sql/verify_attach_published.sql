-- The published warehouse, to be read..
ATTACH {path} AS published (READ_ONLY);
