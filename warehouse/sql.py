"""The SQL of a package: named statements, read from the `.sql` files beside its modules.

    -- name: classify_rows
    -- What each row is against the state. Grain: event. Run twice: the same.
    SELECT …

A file is one step of the way and has its statements in the order they run; its header shows the
flow. Values are bound by name; nothing is put into the text but identifiers of declared tables.
Belongs here: reading the files, and paths as DuckDB takes them. Does not: any statement.
"""

import re
from collections.abc import Iterator
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import duckdb

_FOLDERS: Final = frozenset({"sql", "views"})
_NAMED: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PATTERN: Final = re.compile(r"([*?\[])")


class Statements:
    """The statements of a package by name. Files are read when the first is asked for."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement.

        Raises:
            KeyError: the package has no statement of this name.
        """
        try:
            return self.texts[name]
        except KeyError:
            raise KeyError(f"{self._package} has no statement {name}") from None

    @cached_property
    def texts(self) -> dict[str, str]:
        """All statements, by name in the order of their files.

        Raises:
            ValueError: two have one name.
        """
        found: dict[str, str] = {}
        for file in _files(resources.files(self._package)):
            for name, text in statements_in(file.read_text("utf-8")):
                if name in found:
                    raise ValueError(f"{self._package} has two statements {name}")
                found[name] = text
        return found


def statements_in(text: str) -> list[tuple[str, str]]:
    """Return the names and texts of a file's statements, in their order."""
    _, *parts = _NAMED.split(text)
    return list(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            yield entry
        elif entry.name in _FOLDERS:
            yield from _files(entry)


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
        (statement,) = connection.extract_statements(text)
    return statement
