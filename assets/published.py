"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. They follow from the tables of the warehouse.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any, Final

import dagster as dg

from assets.calendar import record_covered_months
from assets.changes import CHANGES, record_other_days
from assets.layout import Layout
from assets.metadata import log_problems, merge_metadata, table_preview
from assets.partitions import FRESH_WITHIN, WAREHOUSE_POOL
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge
from warehouse.history.merge_report import MergeReport
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.schema import tables
from warehouse.schema.tables import Table

GROUP: Final = "warehouse"
_LOCAL: Final = (tables.REQUESTS, tables.USAGE)
"""Tables made from this machine's logs, not from the catalog."""
PUBLISHED: Final = tuple(table for table in tables.TABLES if table not in _LOCAL)
_STALE_AFTER: Final = timedelta(hours=26)


def spec_of(layout: Layout, table: Table) -> dg.AssetSpec:
    """Return the asset spec of a published table, with its columns and their meaning."""
    columns = [
        dg.TableColumn(column.name, column.type, description=column.meaning)
        for column in table.columns
    ]
    return dg.AssetSpec(
        layout.key(table.name),
        deps=[layout.key(CHANGES)],
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
        if table is tables.EVENTS
        else None,
    )


def published_tables(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of all published tables, which merges what is not merged yet."""

    @dg.multi_asset(
        name=layout.name("published_tables"),
        specs=[spec_of(layout, table) for table in PUBLISHED],
        can_subset=True,  # a single table may be selected; all are published together anyway
        pool=layout.name(WAREHOUSE_POOL),
        required_resource_keys=layout.names("home"),
    )
    def published(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        selected = {layout.asset(key) for key in context.selected_asset_keys}
        home = layout.resource(context, "home")
        for table, metadata in publish(layout, context, home, selected):
            yield dg.MaterializeResult(asset_key=layout.key(table), metadata=metadata)
        with connected(home.warehouse, own_files=True) as connection:
            record_covered_months(context, layout, connection)

    return published


def publish(
    layout: Layout, context: dg.AssetExecutionContext, home: Home, selected: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Merge what is not merged yet, publish, and yield name and metadata of the selected tables.

    Raises:
        dg.Failure: the lake can't be continued.
        ValueError: a selected table is not published.
    """
    if unknown := set(selected) - {table.name for table in PUBLISHED}:
        raise ValueError(f"there is no published table {min(unknown)!r}")
    try:
        report = merge(home)
    except WarehouseError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    log_problems(context.log, report.problems)
    record_other_days(context, layout.key(CHANGES), home, report)
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            if table.name not in selected:
                continue
            ((count,),) = connection.table(table.name).aggregate("count(*)").fetchall()
            yield (
                table.name,
                {
                    "rows": count,
                    "dagster/row_count": count,
                    "preview": dg.MetadataValue.md(table_preview(connection, table)),
                    **_publication_metadata(report, home),
                },
            )


def _publication_metadata(report: MergeReport, home: Home) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "file": dg.MetadataValue.path(str(home.warehouse.resolve())),
        "bytes": home.warehouse.stat().st_size,
        **merge_metadata(report),
    }
    if report.published is not None:
        metadata["published"] = report.published.mode
        if report.published.why_full:
            metadata["reason for full publication"] = report.published.why_full
    return metadata
