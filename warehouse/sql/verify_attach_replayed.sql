-- A warehouse made anew from landing, to be read..
ATTACH {path} AS replayed (READ_ONLY);
