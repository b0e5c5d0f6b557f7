"""Bring a copy of the published warehouse up to the lake, by what differs alone.

What a table should hold is compared with what it has, by key and 64-bit hash of each row, over
the rows that may differ: those of the days that changed, of the events that did, or all. Only rows
that differ are written; what changes in nearly every row, as what each look says anew, is updated
in place, which leaves the file its size. Belongs here: that comparison. Does not: the rows
(sql/publish_*.sql).
"""

from dataclasses import dataclass
from datetime import date
from typing import Final

from warehouse.publish.full import prepare_unknown_fields, published_values
from warehouse.publish.inputs import Inputs, LocalState
from warehouse.publish.staged_file import Staged, Values
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import (
    BATCHES,
    CANCELLATIONS,
    CATEGORIES,
    COIN_SNAPSHOTS,
    COINS,
    COVERAGE,
    EVENT_CATEGORIES,
    EVENT_COINS,
    EVENT_VERSIONS,
    EVENTS,
    FIRST_LOOK,
    PUBLISHED,
    REJECTS,
    REQUESTS,
    USAGE,
    Table,
)
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

SHARE_MAX: Final = 0.2
"""Of a table's rows; where more are no more, it is cheaper to write all of them anew."""
ROWS_ALWAYS: Final = 10_000
_DERIVED: Final = frozenset({"known_to", "first_seen_at"})
"""Of a version; `_apply_spans` says them."""
_LOOKS: Final = frozenset({"last_seen_at", "missing_since", "content_at"})
"""Of an event; every look that shows it says them anew."""
_OF_CHANGED_BATCHES: Final = "batch_id IN (SELECT batch_id FROM changed_batches)"
_OF_CHANGED_DAYS: Final = "observed_date >= $first_day"
_OF_TOUCHED_EVENTS: Final = "event_id IN (SELECT event_id FROM touched)"
_ALL: Final = "true"


class DoesNotFit(Exception):
    """The published file can't be brought up to the lake; it is to be made anew."""


@dataclass(frozen=True, slots=True)
class _Compare:
    """A table, and which of its rows may differ. `whole`: it may be rewritten from the state."""

    table: Table
    condition: str
    whole: bool = False
    updated: frozenset[str] = frozenset()
    """Columns that no row is replaced for: they are updated once the rows are there."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.table.names if name not in self.updated)


def apply(staged: Staged, inputs: Inputs, first_day: date) -> None:
    """Apply the days that changed, from `first_day` on, and the state after the last.

    Raises:
        DoesNotFit: too much differs.
    """
    values = {
        **inputs.files(),
        **published_values(inputs),
        "first_day": first_day,
        "current": True,
        "everything": False,
    }
    if inputs.state:
        prepare_unknown_fields(staged, inputs)
    _apply_days(staged, values)
    _apply_state(staged, values)
    staged.run(_SQL["find_touched"])
    _apply_links(staged, values)
    _replace(staged, FIRST_LOOK, {})
    _apply_spans(staged)


def apply_local(staged: Staged, local: LocalState) -> None:
    """Replace what comes from this machine's logs."""
    for table in (REQUESTS, USAGE):
        _replace(staged, table, local.files)


def _apply_days(staged: Staged, values: Values) -> None:
    _apply(staged, _Compare(BATCHES, _OF_CHANGED_DAYS), values)
    staged.run(_SQL["find_changed_batches"])
    staged.run(_SQL["clear_version_spans"])
    for compare in (
        _Compare(EVENT_VERSIONS, _OF_CHANGED_BATCHES, updated=_DERIVED),
        _Compare(COVERAGE, _OF_CHANGED_BATCHES),
        _Compare(REJECTS, _OF_CHANGED_DAYS),
        _Compare(COIN_SNAPSHOTS, _OF_CHANGED_DAYS),
        _Compare(PUBLISHED, "day >= $first_day"),
    ):
        _apply(staged, compare, values)


def _apply_state(staged: Staged, values: Values) -> None:
    for table in (COINS, CATEGORIES, CANCELLATIONS, EVENTS):
        # Lists can't be updated in place, so the content of an event is replaced as a row.
        updated = _LOOKS if table is EVENTS else frozenset(table.names) - {*table.key}
        query = _apply(staged, _Compare(table, _ALL, whole=True, updated=updated), values)
        columns = tuple(name for name in table.names if name in updated)
        staged.run(ddl.update(table, columns, query), values)


def _apply_links(staged: Staged, values: Values) -> None:
    """Compare the links of touched events; update in all of them what their other ends say."""
    for table in (EVENT_COINS, EVENT_CATEGORIES):
        _apply(staged, _Compare(table, _OF_TOUCHED_EVENTS, whole=True), values)
    for name in ("update_coin_names", "update_category_ids"):
        staged.run(_SQL[name], values)


def _apply_spans(staged: Staged) -> None:
    """Say anew until when the versions of touched events hold."""
    for name in ("find_touched_starts", "find_version_spans", "update_version_spans"):
        staged.run(_SQL[name])


def _apply(staged: Staged, compare: _Compare, values: Values) -> str:
    """Delete and insert what differs; return the query for what the table should have."""
    table = compare.table
    query = _find_wanted(staged, compare, values)
    staged.run(ddl.have(table, compare.columns, compare.condition), values)
    staged.run(ddl.gone(table))
    staged.run(ddl.new(table, query), values)
    ((gone,),) = staged.run(ddl.count(table, "gone_"))
    ((standing,),) = staged.run(ddl.count(table))
    if gone <= max(ROWS_ALWAYS, SHARE_MAX * standing):
        if gone:
            staged.run(ddl.delete_gone(table))
        staged.run(ddl.insert_new(table))
    elif compare.whole:
        staged.run(ddl.empty(table))
        staged.run(ddl.insert(table, query), {**values, "everything": True})
    else:
        raise DoesNotFit(f"{gone} of {standing} rows of {table.name} are no more")
    return query


def _find_wanted(staged: Staged, compare: _Compare, values: Values) -> str:
    """Mark what a table should have of the rows that may differ; return the query for it."""
    query = _query(compare.table)
    if staged.lacks(query, values):
        query = ddl.nothing_of(compare.table)
    staged.run(ddl.want(compare.table, compare.columns, query), values)
    return query


def _replace(staged: Staged, table: Table, values: Values) -> None:
    query = _query(table)
    staged.run(ddl.empty(table))
    if not staged.lacks(query, values):
        staged.run(ddl.insert(table, query), values)


def _query(table: Table) -> str:
    return _SQL["select_" + table.name.removeprefix("_almanac_")]
