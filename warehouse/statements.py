"""The SQL of the warehouse, read from the files in `sql/`: one statement each.

A name that begins a file's name is its subject (`normalise_…`, `fold_…`). Values are bound
by name; nothing is put into the text but identifiers of declared tables.
"""

import re
from functools import cache
from importlib import resources
from pathlib import Path

import duckdb

_PATTERN = re.compile(r"([*?\[])")


@cache
def statement(name: str) -> str:
    """Return the text of `sql/<name>.sql`.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    return resources.files("warehouse").joinpath("sql", f"{name}.sql").read_text("utf-8")


def literal(path: Path) -> str:
    """Return a path as DuckDB's readers are to be given it: of this file, whatever its name.

    They take `*`, `?` and `[` for a pattern; a character in brackets stands for itself.
    """
    return _PATTERN.sub(r"[\1]", str(path))


@cache
def parsed(text: str) -> duckdb.Statement:
    """Return a statement that any connection can run again without reading its text: for a long
    one that runs on few rows, that is a third of the time."""
    with duckdb.connect() as connection:
        (one,) = connection.extract_statements(text)
    return one
