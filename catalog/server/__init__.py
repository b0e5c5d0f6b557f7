"""A server that conforms to the contract and reads through one store in SQL."""
