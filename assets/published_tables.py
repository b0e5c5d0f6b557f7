"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. The data version of a table is the hash of its
content. A table that a merge did not change is not materialised again, so an eager asset downstream
runs only after a change. A Dagster backfill materialises every selected table, since it counts the
others as failed.

Failed checks of rows block the assets downstream in the same run; warnings are for people. All run
with every publication, whether or not their table changed: a separate step would be skipped if the
table did not change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import dagster as dg
import duckdb

from almanac.safe_text import plain_line
from assets.event_changes import CHANGES, code_version, record_other_days
from assets.landed_calendar import read_backfilled, record_months
from assets.layout import WAREHOUSE_POOL, Layout, step_failure
from assets.metadata import (
    SQL,
    Metadata,
    column_schema,
    log_problems,
    merge_metadata,
    table_preview,
)
from resources.session import LazySession
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.schema import ddl, tables
from warehouse.schema.tables import Table

GROUP: Final = "warehouse"
_LOCAL: Final = (tables.REQUESTS, tables.USAGE)
"""Tables made from this machine's logs, not from the catalog."""
PUBLISHED: Final = tuple(table for table in tables.TABLES if table not in _LOCAL)
_STAMPS: Final = frozenset({"last_seen_at", "content_at", "updated_at", "last_verified_at"})
_STAMPED: Final = (
    *(tables.EVENT_VERSIONS, tables.EVENT_ABSENCES, tables.COIN_SNAPSHOTS),
    *(tables.REJECTS, tables.BATCHES),
)
"""Tables that record what happened: each of their columns is content."""
DATA_VERSION: Final = "dagster/data_version"
CODE_VERSION: Final = "dagster/code_version"
Versions = tuple[str | None, str | None]
_BACKFILL_TAG: Final = "dagster/backfill"
"""The tag that Dagster gives to each run of a backfill."""


def table_content(connection: duckdb.DuckDBPyConnection, table: Table) -> str:
    """Return the content of a table as a short text, which differs if the rows differ.

    Columns with the time of a pull are left out, except where they are part of the row's meaning.
    """
    left_out = () if table in _STAMPED else _STAMPS
    columns = [name for name in table.names if name not in left_out]
    ((rows, total),) = connection.execute(ddl.count_and_hash(table, columns)).fetchall()
    return f"{rows}-{total}"


def table_spec(layout: Layout, table: Table) -> dg.AssetSpec:
    """Return the asset spec of a published table, with its columns."""
    return dg.AssetSpec(
        layout.key(table.name),
        deps=[dg.AssetDep(layout.key(CHANGES), partition_mapping=dg.AllPartitionMapping())],
        description=f"{table.grain[0].upper()}{table.grain[1:]}.",
        metadata={
            "dagster/table_name": f"warehouse.{table.qualified}",
            "dagster/storage_kind": "duckdb",
            "dagster/column_schema": column_schema(table.columns),
            "key": ", ".join(table.key),
        },
        code_version=code_version(),
        skippable=True,
        **layout.attributes(GROUP, {"duckdb"}),
    )


def published_tables(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of all published tables, which also merges new batches."""

    @dg.multi_asset(
        name=layout.name("published_tables"),
        specs=[table_spec(layout, table) for table in PUBLISHED],
        can_subset=True,  # a single table may be selected; all are published together anyway
        pool=layout.name(WAREHOUSE_POOL),
        required_resource_keys=layout.names("home", "catalog"),
        check_specs=check_specs(layout),
    )
    def published(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        home, catalog = layout.resource(context, "home"), layout.resource(context, "catalog")
        if context.selected_asset_keys:
            yield from _publish(layout, context, home)
        if checks := context.selected_asset_check_keys:
            yield from check_results(layout, checks, catalog, home)

    return published


def _publish(
    layout: Layout, context: dg.AssetExecutionContext, home: Home
) -> Iterator[dg.MaterializeResult[None]]:
    """Merge new batches, publish, and yield the selected tables that changed.

    Raises:
        dg.Failure: the warehouse can't be continued.
    """
    backfilled = read_backfilled(home)
    try:
        report = merge(home)
    except WarehouseError as error:
        raise step_failure(error) from error
    log_problems(context.log, report.problems)
    record_other_days(context, layout.key(CHANGES), home, report)
    unchanged = list[str]()
    recorded = dict[dg.AssetKey, Versions]()
    if _BACKFILL_TAG not in context.run.tags:
        recorded = recorded_versions(context.instance, [*context.selected_asset_keys])
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            key = layout.key(table.name)
            if key not in context.selected_asset_keys:
                continue
            content = table_content(connection, table)
            if recorded.get(key) == (content, code_version()):
                unchanged.append(table.name)
                continue
            yield dg.MaterializeResult(
                asset_key=key,
                data_version=dg.DataVersion(content),
                metadata={**table_metadata(connection, table, home), **merge_metadata(report)},
            )
        record_months(context, layout, home, connection, backfilled)
    if unchanged:
        context.log.info("Not materialised again, since unchanged: %s", ", ".join(unchanged))


def recorded_versions(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, Versions]:
    """Return the versions of the newest materialisation of each asset that has been materialised.

    They are the data version and the code version, None if the materialisation has none.
    """
    newest = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization
        for record in instance.get_asset_records(keys)
    }
    found = dict[dg.AssetKey, Versions]()
    for key, event in newest.items():
        if event is not None and event.asset_materialization is not None:
            tags = event.asset_materialization.tags or {}
            found[key] = (tags.get(DATA_VERSION), tags.get(CODE_VERSION))
    return found


def table_metadata(
    connection: duckdb.DuckDBPyConnection, table: Table, home: Home
) -> dict[str, Any]:
    """Return the metadata of a published table."""
    ((count,),) = connection.table(table.name).aggregate("count(*)").fetchall()
    return {
        "rows": count,
        "dagster/row_count": count,
        "preview": dg.MetadataValue.md(table_preview(connection, table)),
        "file": dg.MetadataValue.path(str(home.warehouse.resolve())),
        "bytes": home.warehouse.stat().st_size,
    }


_NEW_FOR: Final = timedelta(days=7)
CheckResult = tuple[bool, Metadata]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The currently published file, with the expected values for its checks."""

    connection: duckdb.DuckDBPyConnection
    catalog: LazySession
    home: Home

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self.connection.execute(SQL[statement]).fetchall()


Decide = Callable[[CheckedFile], CheckResult]


def check_specs(layout: Layout) -> list[dg.AssetCheckSpec]:
    """Return the checks of the published tables."""
    return [
        dg.AssetCheckSpec(
            name, asset=layout.key(table), description=meaning, blocking=(table, name) in _ERRORS
        )
        for (table, name), (meaning, _) in (_ERRORS | _WARNINGS).items()
    ]


def check_results(
    layout: Layout, keys: Iterable[dg.AssetCheckKey], catalog: LazySession, home: Home
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of some checks of the file that readers open now.

    Raises:
        dg.Failure: there is no published file.
    """
    if not home.warehouse.exists():
        raise dg.Failure("There is no published file to check.", allow_retries=False)
    with connected(home.warehouse, own_files=True) as connection:
        file = CheckedFile(connection, catalog, home)
        for key in sorted(keys):
            check = (layout.asset(key.asset_key), key.name)
            _, decide = (_ERRORS | _WARNINGS)[check]
            passed, metadata = decide(file)
            severity = (
                dg.AssetCheckSeverity.ERROR if check in _ERRORS else dg.AssetCheckSeverity.WARN
            )
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=passed,
                severity=severity,
                metadata=metadata,
            )


def _count_none(statement: str) -> Decide:
    """Return a check that passes if a statement counts 0."""

    def decide(file: CheckedFile) -> CheckResult:
        ((count,),) = file.rows(statement)
        return count == 0, {"found": count}

    return decide


def has_every_version(file: CheckedFile) -> CheckResult:
    """Check that the file has as many versions as its batches added."""
    ((versions, added),) = file.rows("count_versions")
    return versions == added, {"versions": versions, "added by batches": int(added)}


def has_no_new_fields(file: CheckedFile) -> CheckResult:
    """Check that the service began to send no field without a column within the last days."""
    now = file.catalog.now()
    new = [name for name, since in file.rows("find_new_fields") if now - since < _NEW_FOR]
    return not new, {"new fields": ", ".join(map(plain_line, new)) or "none"}


def has_none_quarantined(file: CheckedFile) -> CheckResult:
    """Check that no batch is quarantined, except those that a person dismissed."""
    left_out = file.home.landing.dismissed()
    found = [row for row in file.rows("check_quarantined") if row[0] not in left_out]
    metadata: Metadata = {"quarantined": len(found)}
    if found:
        newest, why = found[0]
        metadata["next step"] = (
            f"almanac batches list {newest}; to merge it anyway: almanac batches release {newest}"
        )
        metadata["newest"] = f"{newest}: {why}"
    return not found, metadata


_ERRORS: Final[dict[tuple[str, str], tuple[str, Decide]]] = {
    ("events", "one_current_version"): (
        "Every event has one current version, with the same number.",
        _count_none("check_current_version"),
    ),
    ("events", "unique_events"): ("Every event occurs once.", _count_none("check_event_keys")),
    ("event_versions", "spans_run_forward"): (
        "No version ends before it begins (known_from <= known_to).",
        _count_none("check_known_spans"),
    ),
    ("event_versions", "unique_versions"): (
        "Every (event_id, version) occurs once.",
        _count_none("check_version_keys"),
    ),
    ("event_versions", "every_version"): (
        "The file has as many versions as its batches added.",
        has_every_version,
    ),
}
"""The meaning of each check by table and name, and its function. A failure blocks."""
_WARNINGS: Final[dict[tuple[str, str], tuple[str, Decide]]] = {
    ("events", "no_new_fields"): (
        "In the last 7 days the service began to send no field that has no column. Such fields "
        "are kept as JSON in `extra`.",
        has_no_new_fields,
    ),
    ("batches", "none_quarantined"): ("No batch is quarantined.", has_none_quarantined),
}
