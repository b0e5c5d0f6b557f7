"""Measurements that a reader can repeat; nothing of the product imports them."""
