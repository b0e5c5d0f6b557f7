"""What `make` installs: the locks, and the environment made of them."""
