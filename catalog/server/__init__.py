"""A server that conforms to the contract and reads through a small store protocol."""
