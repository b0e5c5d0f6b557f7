"""Files that the user hands over."""
