"""The SQL of the warehouse, read from the files in `sql/`: one statement each.

A name that begins a file's name is its subject (`normalise_…`, `fold_…`). Values are bound
by name; nothing is put into the text but identifiers of declared tables.
"""

from functools import cache
from importlib import resources

import duckdb


@cache
def statement(name: str) -> str:
    """Return the text of `sql/<name>.sql`.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    return resources.files("warehouse").joinpath("sql", f"{name}.sql").read_text("utf-8")


@cache
def parsed(text: str) -> duckdb.Statement:
    """Return a statement that any connection can run again without reading its text: for a long
    one that runs on few rows, that is a third of the time."""
    with duckdb.connect() as connection:
        (one,) = connection.extract_statements(text)
    return one
