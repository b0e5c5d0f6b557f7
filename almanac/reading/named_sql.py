"""Named statements: the `.sql` files beside the modules of a package.

    -- name: next_event
    -- Grain: one row per row of the frame …
    SELECT …

A file is one step and has its statements in the order in which they run. Values are bound by name;
only identifiers are put into the text, quoted. Belongs here: reading the files, quoting. Does not:
statements.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

_FOLDERS: Final = frozenset({"sql", "views"})
_NAMED: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class NamedStatements:
    """The statements of a package by name. Files are read at the first access."""

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
        """All statements by name, in the order of their files.

        Raises:
            ValueError: two statements have the same name, or one can't be prepared.
        """
        found: dict[str, str] = {}
        for file in _files(resources.files(self._package)):
            for name, text in statements_in(file.read_text("utf-8")):
                if name in found:
                    raise ValueError(f"{self._package} has two statements {name}")
                try:
                    found[name] = self._prepared(text)
                except ValueError as error:
                    raise ValueError(f"{self._package}, statement {name}: {error}") from None
        return found

    def _prepared(self, text: str) -> str:
        return text


def statements_in(text: str) -> list[tuple[str, str]]:
    """Return the names and texts of the statements of a file, in order."""
    _, *parts = _NAMED.split(text)
    return list(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            yield entry
        elif entry.name in _FOLDERS:
            yield from _files(entry)


def quoted(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return a text as SQL, where no value can be bound."""
    return "'" + text.replace("'", "''") + "'"


Literal = str | bool | int | Sequence[str]


def literal(value: Literal) -> str:
    """Return a value as SQL, where none can be bound."""
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, bool | int):
        return str(value).lower()
    return "[" + ", ".join(map(quoted_text, value)) + "]"
