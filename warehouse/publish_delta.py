"""Bring a copy of the published warehouse up to the lake, by what differs alone.

What a table should hold is compared with what it has, by key and 64-bit hash of each row, over
the rows that may differ: those of the days that changed, or all. Only rows that differ are
written. Belongs here: that comparison. Does not: the rows (sql/publish_*.sql).
"""

from dataclasses import dataclass
from datetime import date
from typing import Final

from warehouse import schema
from warehouse.lake_inputs import Inputs
from warehouse.local_state import LocalState
from warehouse.publish_full import prepare_unknown_fields, published_values
from warehouse.staged import Staged, Values
from warehouse.statements import statement
from warehouse.tables import (
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

SHARE_MAX: Final = 0.2
"""Of a table's rows; where more are no more, it is cheaper to write all of them anew."""
ROWS_ALWAYS: Final = 10_000
_DERIVED: Final = {"known_to", "first_seen_at"}
_OF_CHANGED_BATCHES: Final = "batch_id IN (SELECT batch_id FROM changed_batches)"
_OF_CHANGED_DAYS: Final = "observed_date >= $first_day"
_ALL: Final = "true"


class DoesNotFit(Exception):
    """The published file can't be brought up to the lake; it is to be made anew."""


@dataclass(frozen=True, slots=True)
class _Compare:
    """A table, and which of its rows may differ. `whole`: all of them, so it may be rewritten."""

    table: Table
    condition: str
    whole: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        derived = _DERIVED if self.table is EVENT_VERSIONS else set()
        return tuple(name for name in self.table.names if name not in derived)


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
    }
    if inputs.state:
        prepare_unknown_fields(staged, inputs)
    _apply_days(staged, values)
    for table in (COINS, CATEGORIES, CANCELLATIONS, EVENTS, EVENT_COINS, EVENT_CATEGORIES):
        _apply(staged, _Compare(table, _ALL, whole=True), values)
    _replace(staged, FIRST_LOOK, {})
    _apply_spans(staged)


def apply_local(staged: Staged, local: LocalState) -> None:
    """Replace what comes from this machine's logs."""
    for table in (REQUESTS, USAGE):
        _replace(staged, table, local.files)


def _apply_days(staged: Staged, values: Values) -> None:
    batches = _Compare(BATCHES, _OF_CHANGED_DAYS)
    _find_wanted(staged, batches, values)
    staged.run(statement("publish_changed_batches"), values)
    staged.run(statement("publish_no_spans"))
    for compare in (
        _Compare(EVENT_VERSIONS, _OF_CHANGED_BATCHES),
        batches,
        _Compare(COVERAGE, _OF_CHANGED_BATCHES),
        _Compare(REJECTS, _OF_CHANGED_DAYS),
        _Compare(COIN_SNAPSHOTS, _OF_CHANGED_DAYS),
        _Compare(PUBLISHED, "day >= $first_day"),
    ):
        _apply(staged, compare, values)


def _apply_spans(staged: Staged) -> None:
    """Say anew until when the versions of touched events hold."""
    for name in ("touched", "touched_starts", "version_spans", "spans_update"):
        staged.run(statement(f"publish_{name}"))


def _apply(staged: Staged, compare: _Compare, values: Values) -> None:
    table = compare.table
    query = _find_wanted(staged, compare, values)
    staged.run(schema.have(table, compare.columns, compare.condition), values)
    staged.run(schema.gone(table))
    staged.run(schema.new(table, query), values)
    ((gone,),) = staged.run(schema.count(table, "gone_"))
    ((standing,),) = staged.run(schema.count(table))
    if gone <= max(ROWS_ALWAYS, SHARE_MAX * standing):
        if gone:
            staged.run(schema.delete_gone(table))
        staged.run(schema.insert_new(table))
    elif compare.whole:
        staged.run(schema.empty(table))
        staged.run(schema.insert(table, query), values)
    else:
        raise DoesNotFit(f"{gone} of {standing} rows of {table.name} are no more")


def _find_wanted(staged: Staged, compare: _Compare, values: Values) -> str:
    """Mark what a table should have of the rows that may differ; return the query for it."""
    query = _query(compare.table)
    if staged.lacks(query, values):
        query = schema.nothing_of(compare.table)
    staged.run(schema.want(compare.table, compare.columns, query), values)
    return query


def _replace(staged: Staged, table: Table, values: Values) -> None:
    query = _query(table)
    staged.run(schema.empty(table))
    if not staged.lacks(query, values):
        staged.run(schema.insert(table, query), values)


def _query(table: Table) -> str:
    return statement("publish_" + table.name.removeprefix("_almanac_"))
