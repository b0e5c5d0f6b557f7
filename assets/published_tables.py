"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. The data version of a table is the hash of its
content. A table that a merge did not change is not materialised again, so an eager asset downstream
runs only after a change. A Dagster backfill materialises every selected table, since it counts the
others as failed.

Failed checks of rows block the assets downstream in the same run; warnings are for people. All run
with every publication, whether or not their table changed: a separate step would be skipped if the
table did not change.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import dagster as dg
import duckdb

from almanac.core.errors import WarehouseError
from almanac.core.text import plain_line
from almanac.reading.attached_file import connected
from assets.event_changes import CHANGES, code_version, record_other_days
from assets.layout import WAREHOUSE_POOL, Layout, step_failure
from assets.metadata import (
    SQL,
    column_schema,
    log_problems,
    merge_metadata,
)
from warehouse.history.merge import merge
from warehouse.home import Home
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
        required_resource_keys=layout.names("home"),
        check_specs=check_specs(layout),
    )
    def published(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        home = layout.resource(context, "home")
        if context.selected_asset_keys:
            yield from _publish(layout, context, home)
        if checks := context.selected_asset_check_keys:
            yield from check_results(layout, checks, home)

    return published


def _publish(
    layout: Layout, context: dg.AssetExecutionContext, home: Home
) -> Iterator[dg.MaterializeResult[None]]:
    """Merge new batches, publish, and yield the selected tables that changed.

    Raises:
        dg.Failure: the warehouse can't be continued.
    """
    try:
        report = merge(home)
    except (WarehouseError, OSError, duckdb.IOException) as error:
        raise step_failure(error) from error
    log_problems(context.log, report.problems)
    record_other_days(context, layout, home, report)
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
    if unchanged:
        context.log.info("Not materialised again, since unchanged: %s", ", ".join(unchanged))


def recorded_versions(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, Versions]:
    """Return the versions of the newest materialisation of each asset that has been materialised.

    They are the data version and the code version, None if the materialisation has none.
    """
    found = dict[dg.AssetKey, Versions]()
    for record in instance.get_asset_records(keys):
        event = record.asset_entry.last_materialization
        if event is not None and event.asset_materialization is not None:
            tags = event.asset_materialization.tags or {}
            found[record.asset_entry.asset_key] = (tags.get(DATA_VERSION), tags.get(CODE_VERSION))
    return found


def table_metadata(
    connection: duckdb.DuckDBPyConnection, table: Table, home: Home
) -> dict[str, Any]:
    """Return the metadata of a published table."""
    ((count,),) = connection.table(table.name).aggregate("count(*)").fetchall()
    return {
        "rows": count,
        "dagster/row_count": count,
        "file": dg.MetadataValue.path(str(home.warehouse.resolve())),
        "bytes": home.warehouse.stat().st_size,
    }


_BLOCKING: Final = {
    ("events", "one_current_version"): "Every event has one current version, with the same number.",
    ("events", "unique_events"): "Every event occurs once.",
    ("event_versions", "spans_run_forward"): (
        "No version ends before it begins (known_from <= known_to)."
    ),
    ("event_versions", "unique_versions"): "Every (event_id, version) occurs once.",
    ("event_versions", "every_version"): "The file has as many versions as its batches added.",
}
_CHECKS: Final = _BLOCKING | {
    ("events", "no_new_fields"): (
        "The service sent no new field without a column in the last 7 observed days. Such "
        "fields are kept as JSON in `extra`."
    ),
}
"""The meaning of each check by table and name. Its query `check_<name>` counts and names faults."""


def check_specs(layout: Layout) -> list[dg.AssetCheckSpec]:
    """Return the checks of the published tables."""
    return [
        dg.AssetCheckSpec(
            name, asset=layout.key(table), description=meaning, blocking=(table, name) in _BLOCKING
        )
        for (table, name), meaning in _CHECKS.items()
    ]


def check_results(
    layout: Layout, keys: Iterable[dg.AssetCheckKey], home: Home
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of some checks of the file that readers open now.

    Raises:
        dg.Failure: there is no published file.
    """
    if not home.warehouse.exists():
        raise dg.Failure("There is no published file to check.", allow_retries=False)
    with connected(home.warehouse, own_files=True) as connection:
        for key in sorted(keys):
            ((found, faults),) = connection.execute(SQL[f"check_{key.name}"]).fetchall()
            is_blocking = (layout.asset(key.asset_key), key.name) in _BLOCKING
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=not found,
                severity=dg.AssetCheckSeverity("ERROR" if is_blocking else "WARN"),
                description=None if faults is None else plain_line(faults),
                metadata={"found": found},
            )
