"""The command line: a module for each command, or for commands of one subject."""
