"""Update a copy of the published warehouse to the lake, by writing only the differences.

The expected rows of a table are compared with its actual rows, by key and 64-bit hash, over the
rows that may differ: those of changed days, of changed events, or all. Only rows that differ are
written. A table of the checkpoint whose file is the one that it was made from is not compared.
Columns that change in nearly every row, as the time of the last observation, are updated in place,
so that the file keeps its size. Belongs here: that comparison. Does not: the rows (sql/).
"""

from datetime import date
from typing import Final

from warehouse.publish.full import prepare_unknown_fields, published_values, query_of
from warehouse.publish.inputs import Inputs, LocalState
from warehouse.publish.staged_file import Staged, Values
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import (
    BATCHES,
    EVENT_CATEGORIES,
    EVENT_CLAIMS,
    EVENT_COINS,
    EVENT_VERSIONS,
    EVENTS,
    FILLED,
    DeltaRule,
    Table,
)
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
_READ_LATER: Final = (EVENTS, EVENT_VERSIONS)
"""Tables whose `gone_…` and `new_…` later statements read, also where nothing differs."""


class DoesNotFit(Exception):
    """The published file can't be updated to the lake; a full build is needed."""


def apply(
    staged: Staged, inputs: Inputs, first_day: date, same_state: frozenset[str]
) -> frozenset[str]:
    """Apply the days that changed, from `first_day` on, and the state after the last day.

    `same_state` names the files of the checkpoint that the published file was made from already.
    Returns the names of the tables of which rows differed.

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
    differed = _apply_days(staged, values) | _apply_state(staged, values, same_state)
    ((touched,),) = staged.run(_SQL["find_touched"])
    if touched:
        differed |= _apply_touched(staged, values)
    differed |= _update_links(staged, values, same_state)
    for table in _following("replaced"):
        _replace(staged, table, values)
    return frozenset(differed)


def apply_local(staged: Staged, local: LocalState) -> None:
    """Replace the tables that come from this machine's logs."""
    for table in _following("local"):
        _replace(staged, table, local.files)


def _following(rule: DeltaRule) -> list[Table]:
    return [table for table in FILLED if table.delta == rule]


def _apply_days(staged: Staged, values: Values) -> set[str]:
    """Compare the rows of the changed days; return the tables that differed."""
    differed = _apply(staged, BATCHES, values)
    staged.run(_SQL["find_changed_batches"])
    staged.run(_SQL["clear_version_spans"])
    for table in (*_following("batches"), *_following("days"), *_following("chain")):
        if table is EVENT_CLAIMS and not staged.run(_SQL["find_first_versions"]):
            continue  # Claims follow from first versions, which were compared before them.
        if table is not BATCHES:
            differed |= _apply(staged, table, values)
    return differed


def _apply_state(staged: Staged, values: Values, same_state: frozenset[str]) -> set[str]:
    """Compare the tables of the checkpoint; return those that differed."""
    differed: set[str] = set()
    for table in _following("state"):
        if same_state.issuperset(table.inputs):
            _note_no_difference(staged, table)
            continue
        differed |= _apply(staged, table, values)
        query = query_of(table, values)
        if _updated(staged, ddl.update(table, _in_place(table), query), values):
            differed.add(table.name)
    return differed


def _apply_touched(staged: Staged, values: Values) -> set[str]:
    """Compare the links of touched events, and update the ends of their versions."""
    differed: set[str] = set()
    for table in _following("links"):
        differed |= _apply(staged, table, values)
    for name in ("find_touched_starts", "find_version_spans", "update_version_spans"):
        staged.run(_SQL[name])
    return differed


def _update_links(staged: Staged, values: Values, same_state: frozenset[str]) -> set[str]:
    """Update the names and ids of coins and categories in links, if they may have changed."""
    differed: set[str] = set()
    for table, name, files in (
        (EVENT_COINS, "update_coin_names", {"coins", "labels"}),
        (EVENT_CATEGORIES, "update_category_ids", {"categories"}),
    ):
        if not same_state.issuperset(files) and _updated(staged, _SQL[name], values):
            differed.add(table.name)
    return differed


def _updated(staged: Staged, sql: str, values: Values) -> int:
    ((rows,),) = staged.run(sql, values)
    return int(rows)


def _apply(staged: Staged, table: Table, values: Values) -> set[str]:
    """Delete and insert the rows that differ; return the table's name if there were any."""
    query = query_of(table, values)
    compared = tuple(name for name in table.names if name not in _in_place(table))
    assert table.delta is not None
    # A statement that makes a table returns the number of its rows.
    ((wanted,),) = staged.run(ddl.want(table, compared, query), values)
    ((there,),) = staged.run(ddl.have(table, compared, _CONDITIONS[table.delta]), values)
    if wanted == there == 0:
        _note_no_difference(staged, table)
        return set()
    ((gone,),) = staged.run(ddl.gone(table))
    # The query is the slow part. Keys differ, so that as many rows, none gone, are the same rows.
    has_new = gone > 0 or wanted != there
    staged.run(ddl.new(table, query if has_new else ddl.no_rows(table)), values)
    if gone > ROWS_ALWAYS and gone > SHARE_MAX * (total := staged.run(ddl.count(table))[0][0]):
        if table.delta not in _REWRITTEN:
            raise DoesNotFit(f"{gone} of {total} rows of {table.name} were removed")
        staged.run(ddl.empty(table))
        staged.run(ddl.insert(table, query), {**values, "everything": True})
        return {table.name}
    if gone:
        staged.run(ddl.delete_gone(table))
    if has_new:
        staged.run(ddl.insert_new(table))
    return {table.name} if has_new else set()


def _note_no_difference(staged: Staged, table: Table) -> None:
    if table in _READ_LATER:
        for text in ddl.differs_nowhere(table):
            staged.run(text)


def _in_place(table: Table) -> tuple[str, ...]:
    """Return the columns that are updated after the rows are inserted."""
    if table.delta == "state" and not table.in_place:
        return tuple(name for name in table.names if name not in table.key)
    return tuple(name for name in table.names if name in table.in_place)


def _replace(staged: Staged, table: Table, values: Values) -> None:
    staged.run(ddl.empty(table))
    staged.run(ddl.insert(table, query_of(table, values)), values)
