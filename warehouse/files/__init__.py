"""Files on disk: storage, modes, hashes, and locks that say who holds them."""
