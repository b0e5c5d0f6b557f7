-- Grain: the published file, for reading. Parameters: $path. Run twice: fails, the name is taken.
ATTACH $path AS published (READ_ONLY)
