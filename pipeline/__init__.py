"""What a person or a scheduler starts: settings and the command line."""
