"""Update a copy of the published warehouse to the lake, by writing only the differences.

The expected rows of a table are compared with its actual rows, by key and 64-bit hash, over the
rows that may differ: those of changed days, of changed events, or all. Only rows that differ are
written. Columns that change in nearly every row, as the time of the last observation, are updated
in place, so that the file keeps its size. Belongs here: that comparison. Does not: the rows (sql/).
"""

from datetime import date
from typing import Final

from warehouse.publish.full import prepare_unknown_fields, published_values, query_of
from warehouse.publish.inputs import Inputs, LocalState
from warehouse.publish.staged_file import Staged, Values
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import BATCHES, FILLED, DeltaRule, Table
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

SHARE_MAX: Final = 0.2
"""Share of a table's rows; if more were removed, it is cheaper to write the whole table."""
ROWS_ALWAYS: Final = 10_000
_CONDITIONS: Final[dict[DeltaRule, str]] = {
    "days": "observed_date >= $first_day",
    "chain": "day >= $first_day",
    "batches": "batch_id IN (SELECT batch_id FROM changed_batches)",
    "state": "true",
    "links": "event_id IN (SELECT event_id FROM touched)",
}
"""Which rows of a table may differ."""
_REWRITTEN: Final = frozenset({"state", "links"})
"""Rules whose tables may be rewritten if too many rows differ."""


class DoesNotFit(Exception):
    """The published file can't be updated to the lake; a full build is needed."""


def apply(staged: Staged, inputs: Inputs, first_day: date) -> None:
    """Apply the days that changed, from `first_day` on, and the state after the last day.

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
    for table in _following("replaced"):
        _replace(staged, table, values)
    _apply_spans(staged)


def apply_local(staged: Staged, local: LocalState) -> None:
    """Replace the tables that come from this machine's logs."""
    for table in _following("local"):
        _replace(staged, table, local.files)


def _following(rule: DeltaRule) -> list[Table]:
    return [table for table in FILLED if table.delta == rule]


def _apply_days(staged: Staged, values: Values) -> None:
    _apply(staged, BATCHES, values)
    staged.run(_SQL["find_changed_batches"])
    staged.run(_SQL["clear_version_spans"])
    for table in (*_following("batches"), *_following("days"), *_following("chain")):
        if table is not BATCHES:
            _apply(staged, table, values)


def _apply_state(staged: Staged, values: Values) -> None:
    for table in _following("state"):
        query = _apply(staged, table, values)
        staged.run(ddl.update(table, _in_place(table), query), values)


def _apply_links(staged: Staged, values: Values) -> None:
    """Compare the links of touched events; update the names and ids of coins and categories."""
    for table in _following("links"):
        _apply(staged, table, values)
    for name in ("update_coin_names", "update_category_ids"):
        staged.run(_SQL[name], values)


def _apply_spans(staged: Staged) -> None:
    """Update the ends of the versions of touched events."""
    for name in ("find_touched_starts", "find_version_spans", "update_version_spans"):
        staged.run(_SQL[name])


def _apply(staged: Staged, table: Table, values: Values) -> str:
    """Delete and insert the rows that differ; return the query for the expected rows."""
    query = query_of(table, values)
    compared = tuple(name for name in table.names if name not in _in_place(table))
    assert table.delta is not None
    # A statement that makes a table returns the number of its rows.
    ((wanted,),) = staged.run(ddl.want(table, compared, query), values)
    ((there,),) = staged.run(ddl.have(table, compared, _CONDITIONS[table.delta]), values)
    ((gone,),) = staged.run(ddl.gone(table))
    # The query is the slow part. Keys differ, so that as many rows, none gone, are the same rows.
    has_new = gone > 0 or wanted != there
    staged.run(ddl.new(table, query if has_new else ddl.no_rows(table)), values)
    ((total,),) = staged.run(ddl.count(table))
    if gone <= max(ROWS_ALWAYS, SHARE_MAX * total):
        if gone:
            staged.run(ddl.delete_gone(table))
        if has_new:
            staged.run(ddl.insert_new(table))
    elif table.delta in _REWRITTEN:
        staged.run(ddl.empty(table))
        staged.run(ddl.insert(table, query), {**values, "everything": True})
    else:
        raise DoesNotFit(f"{gone} of {total} rows of {table.name} were removed")
    return query


def _in_place(table: Table) -> tuple[str, ...]:
    """Return the columns that are updated after the rows are inserted."""
    if table.delta == "state" and not table.in_place:
        return tuple(name for name in table.names if name not in table.key)
    return tuple(name for name in table.names if name in table.in_place)


def _replace(staged: Staged, table: Table, values: Values) -> None:
    staged.run(ddl.empty(table))
    staged.run(ddl.insert(table, query_of(table, values)), values)
