"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. They follow from the tables of the warehouse.
Each has the hash of its content as its data version; a table that a merge did not change is not
materialised again, so that an asset that follows it runs only after a change. A backfill of Dagster
materialises each table that was selected for it: it counts others as failed.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import dagster as dg
import duckdb

from assets.calendar import record_covered_months
from assets.changes import CHANGES, record_other_days
from assets.checks import check_results, check_specs
from assets.layout import Layout
from assets.metadata import log_problems, merge_metadata, table_preview
from assets.partitions import FRESH_WITHIN, WAREHOUSE_POOL
from warehouse.errors import WarehouseError
from warehouse.history.merge import MergeReport, merge
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.schema import tables
from warehouse.schema.tables import Table

GROUP: Final = "warehouse"
_LOCAL: Final = (tables.REQUESTS, tables.USAGE)
"""Tables made from this machine's logs, not from the catalog."""
PUBLISHED: Final = tuple(table for table in tables.TABLES if table not in _LOCAL)
_STALE_AFTER: Final = timedelta(hours=26)
_BACKFILL_TAG: Final = "dagster/backfill"
"""The tag that Dagster gives to each run of a backfill."""


def spec_of(layout: Layout, table: Table) -> dg.AssetSpec:
    """Return the asset spec of a published table, with its columns and their meaning."""
    columns = [
        dg.TableColumn(column.name, column.type, description=column.meaning)
        for column in table.columns
    ]
    return dg.AssetSpec(
        layout.key(table.name),
        deps=[_changes(layout)],
        description=f"{table.grain[0].upper()}{table.grain[1:]}.",
        group_name=layout.group(GROUP),
        kinds={"duckdb"},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "key": ", ".join(table.key),
        },
        freshness_policy=dg.FreshnessPolicy.time_window(
            fail_window=FRESH_WITHIN, warn_window=_STALE_AFTER
        )
        if table is tables.COVERAGE
        else None,
        skippable=True,
    )


def _changes(layout: Layout) -> dg.AssetDep:
    """Return the dependency on the change log.

    On its first day alone, as Dagster has it: with each new day it would show every table that did
    not change as outdated.
    """
    first = dg.SpecificPartitionsPartitionMapping([layout.first_day.isoformat()])
    return dg.AssetDep(layout.key(CHANGES), partition_mapping=first)


def published_tables(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of all published tables, which merges what is not merged yet."""

    @dg.multi_asset(
        name=layout.name("published_tables"),
        specs=[spec_of(layout, table) for table in PUBLISHED],
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
    """Merge what is not merged yet, publish, and yield the selected tables that changed.

    Raises:
        dg.Failure: the lake can't be continued.
    """
    try:
        report = merge(home)
    except WarehouseError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    log_problems(context.log, report.problems)
    record_other_days(context, layout.key(CHANGES), home, report)
    assert report.published is not None
    contents, unchanged = report.published.contents, list[str]()
    recorded = dict[dg.AssetKey, str | None]()
    if _BACKFILL_TAG not in context.run.tags:
        recorded = recorded_versions(context.instance, [*context.selected_asset_keys])
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            key = layout.key(table.name)
            if key not in context.selected_asset_keys:
                continue
            if contents[table.name] == recorded.get(key):
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
        record_covered_months(context, layout, connection)
    if unchanged:
        context.log.info("Not materialised again, since unchanged: %s", ", ".join(unchanged))


def recorded_versions(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, str | None]:
    """Return the data version of the newest materialisation of each asset that has been
    materialised, None if that materialisation has no version."""
    newest = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization
        for record in instance.get_asset_records(keys)
    }
    return {
        key: (event.asset_materialization.tags or {}).get("dagster/data_version")
        for key, event in newest.items()
        if event is not None and event.asset_materialization is not None
    }


def table_metadata(
    connection: duckdb.DuckDBPyConnection, table: Table, home: Home
) -> dict[str, Any]:
    """Return the metadata of a published table that follow from the file."""
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
