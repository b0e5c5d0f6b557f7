"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. The data version of a table is the hash of its
content. A table that a merge did not change is not materialised again, so an eager asset downstream
runs only after a change. A Dagster backfill materialises every selected table, since it counts the
others as failed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import dagster as dg
import duckdb

from assets.calendar import read_backfilled, record_months
from assets.changes import CHANGES, record_other_days
from assets.checks import check_results, check_specs
from assets.layout import FRESHNESS, WAREHOUSE_POOL, Layout, step_failure
from assets.metadata import log_problems, merge_metadata, table_preview
from assets.table_columns import column_schema, table_lineage
from warehouse.errors import WarehouseError
from warehouse.history.merge import MergeReport, merge
from warehouse.home import Home
from warehouse.publish.publish import hash_form
from warehouse.queries import connected
from warehouse.schema import tables
from warehouse.schema.tables import Table

GROUP: Final = "warehouse"
_LOCAL: Final = (tables.REQUESTS, tables.USAGE)
"""Tables made from this machine's logs, not from the catalog."""
PUBLISHED: Final = tuple(table for table in tables.TABLES if table not in _LOCAL)
_CHANGED_DAILY: Final = (tables.BATCHES, tables.COIN_SNAPSHOTS, tables.COVERAGE)
"""Tables that each daily pull changes. The others may rightly stay unchanged for weeks, and are not
materialised then, so a freshness policy would report them."""
DATA_VERSION: Final = "dagster/data_version"
CODE_VERSION: Final = "dagster/code_version"
Versions = tuple[str | None, str | None]
_BACKFILL_TAG: Final = "dagster/backfill"
"""The tag that Dagster gives to each run of a backfill."""


def code_version() -> str:
    """Return the version of the declarations and statements that make the tables."""
    return hash_form()[:12]


def table_spec(layout: Layout, table: Table) -> dg.AssetSpec:
    """Return the asset spec of a published table, with its columns and where they come from."""
    return dg.AssetSpec(
        layout.key(table.name),
        deps=[dg.AssetDep(layout.key(CHANGES), partition_mapping=dg.AllPartitionMapping())],
        description=f"{table.grain[0].upper()}{table.grain[1:]}.",
        metadata={
            "dagster/table_name": f"warehouse.{table.qualified}",
            "dagster/storage_kind": "duckdb",
            "dagster/column_schema": column_schema(table.columns),
            "dagster/column_lineage": table_lineage(layout, table),
            "key": ", ".join(table.key),
        },
        freshness_policy=FRESHNESS if table in _CHANGED_DAILY else None,
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
        dg.Failure: the lake can't be continued.
    """
    backfilled = read_backfilled(home)
    try:
        report = merge(home)
    except WarehouseError as error:
        raise step_failure(error) from error
    log_problems(context.log, report.problems)
    record_other_days(context, layout.key(CHANGES), home, report)
    assert report.published is not None
    contents, unchanged = report.published.contents, list[str]()
    recorded = dict[dg.AssetKey, Versions]()
    if _BACKFILL_TAG not in context.run.tags:
        recorded = recorded_versions(context.instance, [*context.selected_asset_keys])
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            key = layout.key(table.name)
            if key not in context.selected_asset_keys:
                continue
            if recorded.get(key) == (contents[table.name], code_version()):
                unchanged.append(table.name)
                continue
            yield dg.MaterializeResult(
                asset_key=key,
                data_version=dg.DataVersion(contents[table.name]),
                metadata={
                    **table_metadata(connection, table, home),
                    **_publication_metadata(report),
                },
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


def _publication_metadata(report: MergeReport) -> dict[str, Any]:
    metadata: dict[str, Any] = merge_metadata(report)
    if report.published is not None:
        metadata["published"] = report.published.mode
        if report.published.why_full:
            metadata["reason for full publication"] = report.published.why_full
    return metadata
