"""Make the whole warehouse anew from the lake.

Belongs here: the order in which an empty file is filled. Does not: the rows (sql/publish_*.sql).
"""

from warehouse.publish.inputs import Inputs, LocalState
from warehouse.publish.staged_file import Staged, Values
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS, NAMES
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
    INTERNAL,
    PUBLISHED,
    REJECTS,
    REQUESTS,
    TABLES,
    USAGE,
    Table,
)
from warehouse.schema.views import INTERNAL_MACROS, MACROS, VIEWS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

_BEGINNING = "-infinity"


def build(staged: Staged, inputs: Inputs, local: LocalState) -> None:
    """Fill an empty file with everything. A table whose files are missing stays empty."""
    declare(staged)
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
    for table in (BATCHES, COVERAGE, COINS, CATEGORIES, CANCELLATIONS, EVENTS):
        fill(staged, table, values)
    staged.let_go()
    if inputs.days:
        _fill_versions(staged, values)
    for table in (EVENT_COINS, EVENT_CATEGORIES, COIN_SNAPSHOTS, REJECTS, REQUESTS, USAGE):
        fill(staged, table, values)
    for table in (PUBLISHED, FIRST_LOOK):
        fill(staged, table, values)


def declare(staged: Staged) -> None:
    """Make the tables, views and macros, with what each is said beside it."""
    for table in (*TABLES, *INTERNAL):
        staged.run(ddl.create(table))
    for view in VIEWS:
        staged.run(ddl.create_view(view))
    for name in INTERNAL_MACROS:
        staged.run(ddl.create_macro(name))
    for macro in MACROS:
        staged.run(ddl.create_macro(macro.name))
        staged.run(ddl.comment_macro(macro))
    for kind, tables in (("TABLE", TABLES), ("VIEW", VIEWS)):
        for table in tables:
            for text in ddl.comments(table, kind):
                staged.run(text)


def fill(staged: Staged, table: Table, values: Values) -> None:
    query = _SQL["select_" + table.name.removeprefix("_almanac_")]
    if not staged.lacks(query, values):
        staged.run(ddl.insert(table, query), values)


def prepare_unknown_fields(staged: Staged, inputs: Inputs) -> None:
    files = [*inputs.changes, inputs.state["events"]]
    staged.run(_SQL["find_unknown_fields"], {"files": files, "names": list(NAMES)})


def published_values(inputs: Inputs) -> Values:
    return {
        "days": [one.day for one in inputs.days],
        "hashes": [one.sha256 for one in inputs.days],
    }


def _fill_versions(staged: Staged, values: Values) -> None:
    staged.run(_SQL["find_version_starts"], values)
    staged.run(_SQL["find_version_spans"])
    query = ddl.insert(EVENT_VERSIONS, _SQL["select_event_versions"])
    for current in (False, True):
        staged.run(query, {**values, "current": current})
        staged.let_go()
