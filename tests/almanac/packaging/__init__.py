"""The wheel: what is in it, and that it works where nothing else of ours is."""
