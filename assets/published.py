"""The tables that analysts read, all published together in one file.

They have no partitions, since each holds all days. They follow from the tables of the warehouse.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import dagster as dg

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


def spec_of(table: Table) -> dg.AssetSpec:
    """Return the asset spec of a published table, with its columns and their meaning."""
    columns = [
        dg.TableColumn(column.name, column.type, description=column.meaning)
        for column in table.columns
    ]
    return dg.AssetSpec(
        table.name,
        deps=["event_changes"],
        description=f"{table.grain[0].upper()}{table.grain[1:]}.",
        group_name=GROUP,
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


@dg.multi_asset(
    name="published_tables",
    specs=[spec_of(table) for table in PUBLISHED],
    can_subset=True,  # a single table may be selected; all are published together anyway
    pool=WAREHOUSE_POOL,
)
def published_tables(
    context: dg.AssetExecutionContext, home: dg.ResourceParam[Home]
) -> Iterator[dg.MaterializeResult[None]]:
    """Merge what is not merged yet, and publish."""
    try:
        report = merge(home)
    except WarehouseError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    log_problems(context.log, report.problems)
    with connected(home.warehouse, own_files=True) as connection:
        for table in PUBLISHED:
            if dg.AssetKey(table.name) not in context.selected_asset_keys:
                continue
            ((count,),) = connection.table(table.name).aggregate("count(*)").fetchall()
            yield dg.MaterializeResult(
                asset_key=table.name,
                metadata={
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
