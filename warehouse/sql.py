"""The SQL of a package: named statements, read from the `.sql` files beside its modules.

    -- name: log_new_versions
    -- New versions of known events. Grain: event, version. Once per observation.
    INSERT INTO day_versions SELECT …, {each content: @name}, known, extra FROM new_versions;

A file is one step and has its statements in the order in which they run; its header shows the flow.
Values are bound by name; only identifiers of declared tables are put into the text. `{each …}`
expands to a list of columns (below). The module replaces each other name in braces; the file header
lists these names.

`{each GROUP: TEMPLATE}` repeats the template for each column of a group of `schema/columns.py`, in
declared order, with commas; templates that begin with `WHEN` are branches of a `CASE` and have
none. `@name` is the column's name; `columns.py` ends with the other marks. `{each GROUP before
COLUMN: …}` takes the columns before one, `after COLUMN` the columns after it, `except COLUMN,
COLUMN` all but some.

Also here: connections of the programs that make the warehouse, with limited memory.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

from almanac.reading.connections import open_memory
from almanac.reading.csv_file import literal
from almanac.reading.named_sql import NamedStatements, statements_in
from warehouse.duckdb_limits import USUAL_LIMITS, DuckDBLimits

__all__ = ["Groups", "Statements", "expand", "literal", "parse", "statements_in"]

_COMMENT_OR_EACH: Final = re.compile(r"--[^\n]*|\{each\b[^{}]*\}?")
_EACH: Final = re.compile(r"\{each (\w+)(?: (before|after|except) (\w+(?:, \w+)*))?:\s+([^{}]+)\}")
_MARK: Final = re.compile(r"@\w*")
_LINE_CHARS: Final = 100
_SHORT_CHARS: Final = 30

Groups = Mapping[str, Sequence[Mapping[str, str]]]
"""Groups of columns by name; for each column, in declared order, the values of `@name` etc."""
_NO_GROUPS: Final[Groups] = {}
_SMALL_BYTES: Final = 16_000_000


class Statements(NamedStatements):
    """The expanded statements of a package by name. Files are read at the first access.

    `groups` are the groups of columns that its expansions may name.
    """

    def __init__(self, package: str, groups: Groups = _NO_GROUPS) -> None:
        super().__init__(package)
        self._groups = groups

    def _prepared(self, text: str) -> str:
        return expand(text, self._groups)


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


@cache
def parse(text: str) -> duckdb.Statement:
    """Return a parsed statement that any connection can run repeatedly.

    For a long statement on few rows, parsing takes a third of the time. Not for texts that differ
    from run to run: each is kept.
    """
    with _parser().cursor() as connection:
        (statement,) = connection.extract_statements(text)
    return statement


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a shared in-memory process, since making one takes 12 ms."""
    return open_memory()


def open_spilling(
    spill: Path, limits: DuckDBLimits = USUAL_LIMITS, *, warehouse: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Open as `open_memory`, with limits and a folder for spilled data.

    `warehouse` is the file whose rows the statements read or write; if it is small, the
    connection is set for few rows.
    """
    connection = open_memory()
    is_file = warehouse is not None and warehouse.is_file()
    if warehouse is not None and is_file and warehouse.stat().st_size <= _SMALL_BYTES:
        # Each join clears the same tables for filters of its other side, however few the rows
        # are: half of the memory that a merge of two rows touches.
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    connection.execute("SET memory_limit = $limit", {"limit": f"{limits.memory_bytes}B"})
    if limits.threads is not None:
        connection.execute("SET threads = $threads", {"threads": limits.threads})
    connection.execute("SET temp_directory = $folder", {"folder": str(spill)})
    return connection
