"""The programs of `almanac ui`: web server and daemon, each attached to its starter."""
