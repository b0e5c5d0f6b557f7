"""Build the whole warehouse from the lake.

Belongs here: making an empty file, filling it, and finding the statement of a table. The order is
declared with the tables (schema/tables.py). Does not: the rows (sql/).
"""

from pathlib import Path

from warehouse.connections import MakingLimits
from warehouse.publish.inputs import Inputs, LocalState
from warehouse.publish.staged_file import Staged, Values, parameters
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS, NAMES
from warehouse.schema.tables import (
    EVENT_CLAIMS,
    EVENT_VERSIONS,
    FILLED,
    INTERNAL,
    INTERNAL_SCHEMA,
    TABLES,
    Table,
)
from warehouse.schema.views import INTERNAL_MACROS, MACROS, VIEWS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

_BEGINNING = "-infinity"
_declared: list[bytes] = []
"""The empty file that this process declared first."""


def begin(path: Path, limits: MakingLimits) -> Staged:
    """Make a file with all declarations and no rows, and open it.

    They are made once in a process and copied from then on: the 560 statements take half as long
    as a small build. Not the file is copied, or a `.wal` of one publication would fit another.
    """
    staged = Staged(path, limits)
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
        staged.abandon()
        raise
    return staged


def build(staged: Staged, inputs: Inputs, local: LocalState) -> None:
    """Fill all tables of an empty file. A table without input files stays empty."""
    values = {
        **inputs.files(),
        **local.files,
        **published_values(inputs),
        "first_day": _BEGINNING,
        "everything": True,
    }
    staged.run(_SQL["clear_touched"])
    if inputs.days:
        prepare_unknown_fields(staged, inputs)
    for table in FILLED:
        if table is EVENT_VERSIONS:
            staged.commit_so_far()
            if inputs.days:
                _fill_versions(staged, values)
        else:
            staged.run(ddl.insert(table, query_of(table, values)), values)
        if table is EVENT_CLAIMS:
            staged.commit_so_far()


def declare(staged: Staged) -> None:
    """Make the tables, views and macros, with comments that describe them."""
    staged.run(ddl.create_schema(INTERNAL_SCHEMA))
    for name in INTERNAL_MACROS:
        staged.run(ddl.create_macro(name))
    for table in (*TABLES, *INTERNAL):
        staged.run(ddl.create(table))
    for view in VIEWS:
        staged.run(ddl.create_view(view))
    for macro in MACROS:
        staged.run(ddl.create_macro(macro.name))
        staged.run(ddl.comment_macro(macro))
    for kind, tables in (("TABLE", (*TABLES, *INTERNAL)), ("VIEW", VIEWS)):
        for table in tables:
            for text in ddl.comments(table, kind):
                staged.run(text)


def query_of(table: Table, values: Values) -> str:
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


def prepare_unknown_fields(staged: Staged, inputs: Inputs) -> None:
    files = [*inputs.changes, inputs.state["events"]]
    staged.run(_SQL["find_unknown_fields"], {"files": files, "names": list(NAMES)})


def published_values(inputs: Inputs) -> Values:
    return {
        "days": [day_file.day for day_file in inputs.days],
        "hashes": [day_file.sha256 for day_file in inputs.days],
    }


def _fill_versions(staged: Staged, values: Values) -> None:
    staged.run(_SQL["find_version_starts"], values)
    staged.run(_SQL["find_version_spans"])
    for current in (False, True):
        bound = {**values, "current": current}
        staged.run(ddl.insert(EVENT_VERSIONS, query_of(EVENT_VERSIONS, bound)), bound)
        staged.commit_so_far()
