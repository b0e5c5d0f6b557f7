"""Columns, tables and views declared as data; the DDL and the dictionary made from them."""
