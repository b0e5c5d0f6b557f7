"""The programs of `almanac ui`: web server and daemon, and the process they belong to."""
