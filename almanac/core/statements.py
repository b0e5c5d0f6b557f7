"""The SQL of a package: named statements, read from the `.sql` files beside its modules.

    -- name: log_new_versions
    -- New versions of known events. Grain: event, version. Once per observation.
    INSERT INTO day_versions SELECT …, {each content: @name}, known, extra FROM new_versions;

A file is one step and has its statements in the order in which they run; its header shows the flow.
Values are bound by name; only identifiers of declared tables are put into the text. `{each …}` is
replaced by a list of columns (below). A name in braces is replaced by a text that the module gives,
by another statement of the package, or by one of `shared.sql`.

`{each GROUP: TEMPLATE}` repeats the template for each column of a group of `schema/columns.py`, in
declared order, with commas; templates that begin with `WHEN` are branches of a `CASE` and have
none. `@name` is the column's name; `columns.py` ends with the other marks. `{each GROUP before
COLUMN: …}` takes the columns before one, `after COLUMN` the columns after it, `except COLUMN,
COLUMN` all but some.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, Final

NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})
_FOLDERS: Final = frozenset({"sql", "views"})
_COMMENT_OR_PART: Final = re.compile(r"--[^\n]*|(?<!\\x)\{([a-z]\w*)\}")
_NAMED: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT_OR_EACH: Final = re.compile(r"--[^\n]*|\{each\b[^{}]*\}?")
_EACH: Final = re.compile(r"\{each (\w+)(?: (before|after|except) (\w+(?:, \w+)*))?:\s+([^{}]+)\}")
_MARK: Final = re.compile(r"@\w*")
_LINE_CHARS: Final = 100
_SHORT_CHARS: Final = 30

Groups = Mapping[str, Sequence[Mapping[str, str]]]
"""Groups of columns by name; for each column, in declared order, the values of `@name` etc."""
_NO_GROUPS: Final[Groups] = {}


class Statements:
    """The statements of a package by name. Files are read at the first access.

    `groups` are the groups of columns that its expansions may name. `parts` are texts for names in
    braces, which not every statement has.
    """

    def __init__(self, package: str, groups: Groups = _NO_GROUPS, **parts: str) -> None:
        self._package = package
        self._groups = groups
        self._parts = parts
        self._filled: dict[tuple[object, ...], str] = {}

    def __getitem__(self, name: str) -> str:
        return self.fill(name)

    def fill(self, name: str, /, **parts: str) -> str:
        """Return the text of a statement, with a text for each of its names in braces.

        Raises:
            ValueError: a name in braces lacks a text, or the statement lacks a name of `parts`.
        """
        key = (name, *parts.items())
        if key not in self._filled:
            unused = set(parts)
            self._filled[key] = self._put(name, self._parts | parts, unused)
            if unused:
                raise ValueError(f"{self._package}, statement {name}: no {{{unused.pop()}}} in it")
        return self._filled[key]

    def _put(self, name: str, parts: Mapping[str, str], unused: set[str]) -> str:
        def put(found: re.Match[str]) -> str:
            unused.discard(found[1])
            if found[1] is None:
                return found[0]
            return parts[found[1]] if found[1] in parts else self._put(found[1], parts, unused)

        known = _read_statements(__package__) | _read_statements(self._package)
        if name not in known:
            raise ValueError(f"{self._package} has no statement {name}, and no text for it")
        try:
            return _COMMENT_OR_PART.sub(put, expand(known[name], self._groups))
        except ValueError as error:
            raise ValueError(f"{self._package}, statement {name}: {error}") from None


@cache
def _read_statements(package: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _files(resources.files(package)):
        for name, text in statements_in(file.read_text("utf-8")):
            if name in found:
                raise ValueError(f"{package} has two statements {name}")
            found[name] = text
    return found


def statements_in(text: str) -> list[tuple[str, str]]:
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


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return unique names: with a repeated name, a dict, a frame or JSON would lose a column."""
    found: list[str] = []
    for name in names:
        number, free = 0, name
        while free in found or (number and free in names):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


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


def expand(text: str, groups: Groups) -> str:
    """Return a statement with each `{each GROUP: TEMPLATE}` replaced by its columns."""

    def replaced(found: re.Match[str]) -> str:
        if found[0].startswith("--"):
            return found[0]
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        template, items = _items(found[0], groups)
        comma = "" if template.startswith("WHEN ") else ","
        return _laid_out(items, comma, line)

    return _COMMENT_OR_EACH.sub(replaced, text)


def _items(expansion: str, groups: Groups) -> tuple[str, list[str]]:
    """Return the template of an expansion, and its text for each of its columns."""
    found = _EACH.fullmatch(expansion)
    if found is None:
        raise ValueError(
            f"{expansion!r} is not an expansion; write {{each GROUP: TEMPLATE}}, or after GROUP "
            "`before COLUMN`, `after COLUMN` or `except COLUMN, COLUMN`"
        )
    name, choice, listed, template = found.groups()
    if name not in groups:
        raise ValueError(f"no group {name}; there are {', '.join(groups) or 'none'}")
    columns = [column["name"] for column in groups[name]]
    named = listed.split(", ") if listed else []
    if unknown := [column for column in named if column not in columns]:
        raise ValueError(f"{expansion!r}: {name} has no {', '.join(unknown)}")
    if choice is not None and choice != "except" and len(named) > 1:
        raise ValueError(f"{expansion!r}: `{choice}` takes one column")
    kept = set(columns) - set(named)
    if choice == "before":
        kept = set(columns[: columns.index(named[0])])
    elif choice == "after":
        kept = set(columns[columns.index(named[0]) + 1 :])
    items = [_filled(template, column) for column in groups[name] if column["name"] in kept]
    if not items:
        raise ValueError(f"{expansion!r} has no column")
    return template, items


def _filled(template: str, column: Mapping[str, str]) -> str:
    """Return a template filled for one column. The text for a mark may contain `@name`."""
    text = template
    for mark in sorted(column, key=lambda mark: mark == "name"):
        text = text.replace(f"@{mark}", column[mark])
    if (unknown := _MARK.search(text)) is not None:
        raise ValueError(f"{column['name']} has no {unknown[0]}, met in {template!r}")
    return text


def _laid_out(items: list[str], comma: str, line: str) -> str:
    """Join items: short ones fill lines, longer ones have a line each, indented as `line`."""
    indent = line[: len(line) - len(line.lstrip())]
    is_short = comma and max(map(len, items)) <= _SHORT_CHARS
    width, text = len(line), ""
    for number, item in enumerate(items):
        if number:
            text += comma
            if is_short and width + len(item) + len(", ,") <= _LINE_CHARS:
                text, width = text + " ", width + 1
            else:
                text, width = f"{text}\n{indent}", len(indent)
        text, width = text + item, width + len(item) + len(comma)
    return text
