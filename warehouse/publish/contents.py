"""The content of each published table as a short text: it differs if and only if the rows differ.

Stored as facts in the published file, so that a delta takes the sum of a large table and adds and
subtracts the rows that it changed. Columns that say when something was last seen, verified or
updated are left out: pulls change them, and they alone make no version. Tables of this machine's
logs have none. Belongs here: these texts. Does not: what they are used for.
"""

from collections.abc import Collection, Mapping
from typing import Final

from warehouse.publish.staged_file import Staged
from warehouse.schema import ddl
from warehouse.schema.tables import TABLES, DeltaRule, Table

FACT: Final = "content:"
"""Begins the names of these facts."""
_STAMPS: Final = frozenset({"last_seen_at", "content_at", "updated_at", "last_verified_at"})
_HASHED: Final = tuple(table for table in TABLES if table.delta != "local")
_SUMMED: Final = frozenset[DeltaRule]({"batches", "days"})
"""Rules whose tables may be too large to be read whole for each publication."""


def contents_of(staged: Staged) -> dict[str, str]:
    """Return the content of every table, read whole."""
    return {table.name: _text(*_sum(staged, table)) for table in _HASHED}


def contents_after(
    staged: Staged, before: Mapping[str, str], differed: Collection[str]
) -> dict[str, str]:
    """Return the content of every table after a delta, from the facts before it.

    `differed` names the tables of which rows differed; the others keep their content.

    Raises:
        LookupError: the facts before do not have it.
    """
    return {
        table.name: _after(staged, table, before[table.name])
        if table.name in differed
        else before[table.name]
        for table in _HASHED
    }


def contents_in(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the contents that the facts of a file have, by table."""
    return {
        name.removeprefix(FACT): value for name, value in facts.items() if name.startswith(FACT)
    }


def _after(staged: Staged, table: Table, before: str) -> str:
    if table.delta not in _SUMMED:
        return _text(*_sum(staged, table))
    rows, total = map(int, before.split("-"))
    for prefix, sign in (("gone_", -1), ("new_", 1)):
        count, part = _sum(staged, table, prefix)
        rows, total = rows + sign * count, total + sign * part
    return _text(rows, total)


def _sum(staged: Staged, table: Table, prefix: str = "") -> tuple[int, int]:
    ((rows, total),) = staged.run(ddl.content(table, _columns(table), prefix))
    return int(rows), int(total)


def _columns(table: Table) -> tuple[str, ...]:
    """Return the columns whose values are the content: of a summed table, those that a delta
    compares."""
    left_out = table.in_place if table.delta in _SUMMED else _STAMPS
    return tuple(name for name in table.names if name not in left_out)


def _text(rows: int, total: int) -> str:
    return f"{rows}-{total}"
