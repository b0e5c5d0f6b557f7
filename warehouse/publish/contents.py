"""The rows of the published tables: written in full, or as differences to an earlier file.

A full build fills the tables of an empty file in their declared order. A delta compares the
expected rows of a table with its actual rows, by key and 64-bit hash, over the rows that may
differ: those of changed days, of touched events, or all. Only rows that differ are written. A row
of `events` is replaced without a comparison if a version of the event or its narrow state differs.
A table of the checkpoint is not compared if it was made from the same file. Columns that change in
nearly every row, such as the time of the last observation, are updated in place, so that the file
keeps its size.

The content of each table is a short text that differs if and only if the rows differ. The published
file stores it, so that a delta takes the sum of a large table and adds and subtracts the rows that
it changed. Columns with the time of a pull are left out, and tables of this machine's logs have no
content.
"""

from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Final

from warehouse.making_limits import MakingLimits
from warehouse.phases import report_phase
from warehouse.publish.lake_files import Inputs, LocalState
from warehouse.publish.published_file import StagedFile, Values, open_making, parameters
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS, NAMES
from warehouse.schema.tables import (
    BATCHES,
    EVENT_CATEGORIES,
    EVENT_COINS,
    EVENT_VERSIONS,
    EVENTS,
    FILLED,
    INTERNAL,
    INTERNAL_SCHEMA,
    TABLES,
    DeltaRule,
    Table,
)
from warehouse.schema.views import AS_OF_MACROS, INTERNAL_MACROS, MACROS, VIEWS
from warehouse.sql import Statements

_STAMPS: Final = frozenset({"last_seen_at", "content_at", "updated_at", "last_verified_at"})
_HASHED: Final = tuple(table for table in TABLES if table.delta != "local")
_SUMMED: Final = frozenset[DeltaRule]({"batches", "days", "seen"})
"""Rules whose tables may be too large to be read whole for each publication."""
_SQL = Statements(__package__, GROUPS)
_BEGINNING = "-infinity"
_declared: list[bytes] = []
"""The empty file that this process declared first."""
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
_REWRITTEN: Final = frozenset({"state", "seen", "links"})
"""Rules whose tables may be rewritten if too many rows differ."""
_READ_LATER: Final = (EVENT_VERSIONS,)
"""Tables whose `gone_…` and `new_…` later statements read, also where nothing differs."""


def hash_contents(staged: StagedFile) -> dict[str, str]:
    """Return the content of every table, read whole."""
    return {table.name: _text(*_sum(staged, table)) for table in _HASHED}


def update_contents(
    staged: StagedFile, before: Mapping[str, str], differed: Collection[str]
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


def _after(staged: StagedFile, table: Table, before: str) -> str:
    if table.delta not in _SUMMED or (table is EVENTS and _has_missing_changes(staged)):
        return _text(*_sum(staged, table))
    rows, total = map(int, before.split("-"))
    for prefix, sign in (("gone_", -1), ("new_", 1)):
        count, part = _sum(staged, table, prefix)
        rows, total = rows + sign * count, total + sign * part
    return _text(rows, total)


def _has_missing_changes(staged: StagedFile) -> bool:
    """Whether events changed in place that are in neither `gone_events` nor `new_events`."""
    ((changes,),) = staged.run(_SQL["count_missing_changes"])
    return bool(changes)


def _sum(staged: StagedFile, table: Table, prefix: str = "") -> tuple[int, int]:
    ((rows, total),) = staged.run(ddl.content(table, _columns(table), prefix))
    return int(rows), int(total)


def _columns(table: Table) -> tuple[str, ...]:
    """Return the columns whose values are the content: of a summed table, some that a delta
    compares."""
    left_out = table.in_place if table.delta in ("batches", "days") else _STAMPS
    return tuple(name for name in table.names if name not in left_out)


def _text(rows: int, total: int) -> str:
    return f"{rows}-{total}"


def begin_file(path: Path, limits: MakingLimits) -> StagedFile:
    """Make a file with all declarations and no rows, and open it.

    They are made once in a process and copied from then on: the 560 statements take half as long
    as a small build. Not the file is copied, or a `.wal` of one publication would fit another.
    """
    staged = StagedFile(path, open_making(path, limits, warehouse=path))
    try:
        if _declared:
            staged.copy_declarations(_declared[0])
            return staged
        declare(staged)
        staged.commit()
        staged.checkpoint()
        _declared.append(path.read_bytes())
        staged.begin()
    except BaseException:
        staged.close()
        raise
    return staged


def fill_tables(staged: StagedFile, inputs: Inputs, local: LocalState) -> None:
    """Fill all tables of an empty file. A table without input files stays empty."""
    values = {
        **inputs.files(),
        **local.files,
        **published_values(inputs),
        "first_day": _BEGINNING,
        "everything": True,
    }
    for name in ("clear_touched", "clear_version_starts"):
        staged.run(_SQL[name])
    if inputs.days:
        prepare_unknown_fields(staged, inputs)
        ((changed,),) = staged.run(_SQL["count_content_changes"], values)
        if not changed:
            # The content file has all content. Bound so, no row of it passes the anti-join, for
            # which DuckDB estimates too few rows and then builds a hash table of wide content.
            values |= {"content_changes": values["content"], "content": values["content_changes"]}
    for number, table in enumerate(FILLED):
        report_phase("fill tables", number, len(FILLED))
        if table is EVENT_VERSIONS:
            staged.commit_so_far()
            if inputs.days:
                _fill_versions(staged, values)
        else:
            staged.run(ddl.insert(table, fill_query(table, values)), values)


def declare(staged: StagedFile) -> None:
    """Make the tables, views and macros, with comments that describe them."""
    staged.run(ddl.create_schema(INTERNAL_SCHEMA))
    for name in INTERNAL_MACROS:
        staged.run(ddl.create_macro(name))
    for table in (*TABLES, *INTERNAL):
        staged.run(ddl.create(table))
    for view in VIEWS:
        staged.run(ddl.create_view(view))
    for name in AS_OF_MACROS:
        staged.run(ddl.create_macro(name))
    for macro in MACROS:
        staged.run(ddl.create_macro(macro.name))
        staged.run(ddl.comment_macro(macro))
    for kind, tables in (("TABLE", (*TABLES, *INTERNAL)), ("VIEW", VIEWS)):
        for table in tables:
            for text in ddl.comments(table, kind):
                staged.run(text)


def fill_query(table: Table, values: Values) -> str:
    """Return the query for the rows of a table; a query without rows if it has no input files.

    A lake without days, rejects or snapshots has none, and a machine without logs.

    Raises:
        ValueError: the parameters of the statement differ from those the table declares, or a
            value is missing.
    """
    query = _SQL[f"select_{table.name}"]
    names = parameters(query)
    wrong = (names ^ {*table.inputs}) | (names - values.keys())
    if wrong:
        raise ValueError(
            f"{', '.join(sorted(wrong))} of {table.name}: expected its inputs, the values that its "
            "statement takes, and those that are given to agree"
        )
    has_none = any(values[name] is None or values[name] == [] for name in names)
    return ddl.no_rows(table) if has_none else query


def prepare_unknown_fields(staged: StagedFile, inputs: Inputs) -> None:
    files = [*inputs.changes, inputs.state["seen"]]
    staged.run(_SQL["find_unknown_fields"], {"files": files, "names": list(NAMES)})


def published_values(inputs: Inputs) -> Values:
    return {
        "days": [day_file.day for day_file in inputs.days],
        "hashes": [day_file.sha256 for day_file in inputs.days],
    }


def _fill_versions(staged: StagedFile, values: Values) -> None:
    staged.run(_SQL["find_version_starts"], values)
    staged.run(_SQL["find_version_spans"])
    for current in (False, True):
        bound = {**values, "current": current}
        staged.run(ddl.insert(EVENT_VERSIONS, fill_query(EVENT_VERSIONS, bound)), bound)
        staged.commit_so_far()


class DoesNotFit(Exception):
    """The published file can't be updated to the lake; a full build is needed."""


def apply_changes(
    staged: StagedFile, inputs: Inputs, first_day: date, same_state: frozenset[str]
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
    staged.run(_SQL["find_seen_differences"], values)
    ((touched,),) = staged.run(_SQL["find_touched"])
    staged.run(_SQL["find_touched_starts"])
    differed |= _apply_events(staged, values)
    if touched:
        differed |= _apply_touched(staged, values)
    differed |= _update_links(staged, values, same_state)
    for table in _following("replaced"):
        _replace(staged, table, values)
    return frozenset(differed)


def replace_local_tables(staged: StagedFile, local: LocalState) -> None:
    """Replace the tables that come from this machine's logs."""
    for table in _following("local"):
        _replace(staged, table, local.files)


def _following(rule: DeltaRule) -> list[Table]:
    return [table for table in FILLED if table.delta == rule]


def _apply_days(staged: StagedFile, values: Values) -> set[str]:
    """Compare the rows of the changed days; return the tables that differed."""
    differed = _apply(staged, BATCHES, values)
    staged.run(_SQL["find_changed_batches"])
    staged.run(_SQL["clear_version_spans"])
    for table in (*_following("batches"), *_following("days"), *_following("chain")):
        if table is not BATCHES:
            differed |= _apply(staged, table, values)
    return differed


def _apply_state(staged: StagedFile, values: Values, same_state: frozenset[str]) -> set[str]:
    """Compare the tables of the checkpoint; return those that differed."""
    differed: set[str] = set()
    for table in _following("state"):
        if same_state.issuperset(table.inputs):
            _note_no_difference(staged, table)
            continue
        differed |= _apply(staged, table, values)
        query = fill_query(table, values)
        if _updated(staged, ddl.update(table, _in_place(table), query), values):
            differed.add(table.name)
    return differed


def _apply_events(staged: StagedFile, values: Values) -> set[str]:
    """Replace the touched events, and update the other events that were seen."""
    query = fill_query(EVENTS, values)
    ((gone,),) = staged.run(_SQL["find_gone_events"])
    ((in_content,),) = staged.run(_SQL["count_in_content"], values)
    changes = values["content_changes"]
    # The content file is not opened if it has none of the rows: opening takes as long as all else.
    read = values if in_content else {**values, "content": changes}
    ((new,),) = staged.run(ddl.keep_new(EVENTS, query), read)
    if _is_large(staged, EVENTS, gone):
        _rewrite(staged, EVENTS, query, values)
        return {EVENTS.name}
    if gone:
        staged.run(_SQL["delete_gone_events"])
    if new:
        staged.run(ddl.insert_new(EVENTS))
    seen = _updated(staged, _SQL["update_seen"], values)
    return {EVENTS.name} if gone or new or seen else set()


def _apply_touched(staged: StagedFile, values: Values) -> set[str]:
    """Compare the links of touched events, and update the ends of their versions."""
    differed: set[str] = set()
    for table in _following("links"):
        differed |= _apply(staged, table, values)
    for name in ("find_version_spans", "update_version_spans"):
        staged.run(_SQL[name])
    return differed


def _update_links(staged: StagedFile, values: Values, same_state: frozenset[str]) -> set[str]:
    """Update the names and ids of coins and categories in links, if they may have changed."""
    differed: set[str] = set()
    for table, name, files in (
        (EVENT_COINS, "update_coin_names", {"coins", "labels"}),
        (EVENT_CATEGORIES, "update_category_ids", {"categories"}),
    ):
        if not same_state.issuperset(files) and _updated(staged, _SQL[name], values):
            differed.add(table.name)
    return differed


def _updated(staged: StagedFile, sql: str, values: Values) -> int:
    ((rows,),) = staged.run(sql, values)
    return int(rows)


def _apply(staged: StagedFile, table: Table, values: Values) -> set[str]:
    """Delete and insert the rows that differ; return the table's name if there were any."""
    report_phase("compare tables", FILLED.index(table), len(FILLED))
    query = fill_query(table, values)
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
    if _is_large(staged, table, gone):
        _rewrite(staged, table, query, values)
        return {table.name}
    if gone:
        staged.run(ddl.delete_gone(table))
    if has_new:
        staged.run(ddl.insert_new(table))
    return {table.name} if has_new else set()


def _is_large(staged: StagedFile, table: Table, gone: int) -> bool:
    """Whether writing a table anew is cheaper than removing so many rows.

    Raises:
        DoesNotFit: it is, and only a full build writes the table anew.
    """
    if gone <= ROWS_ALWAYS:
        return False
    ((total,),) = staged.run(ddl.count(table))
    if gone <= SHARE_MAX * total:
        return False
    if table.delta not in _REWRITTEN:
        raise DoesNotFit(f"{gone} of {total} rows of {table.name} were removed")
    return True


def _rewrite(staged: StagedFile, table: Table, query: str, values: Values) -> None:
    staged.run(ddl.empty(table))
    staged.run(ddl.insert(table, query), {**values, "everything": True})


def _note_no_difference(staged: StagedFile, table: Table) -> None:
    if table in _READ_LATER:
        for text in ddl.differs_nowhere(table):
            staged.run(text)


def _in_place(table: Table) -> tuple[str, ...]:
    """Return the columns that are updated after the rows are inserted."""
    if table.delta == "state":
        return tuple(name for name in table.names if name not in table.key)
    return tuple(name for name in table.names if name in table.in_place)


def _replace(staged: StagedFile, table: Table, values: Values) -> None:
    staged.run(ddl.empty(table))
    staged.run(ddl.insert(table, fill_query(table, values)), values)
