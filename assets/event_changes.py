"""The changes of events, a partition for each observed day.

Each step that merges records the totals of the days that its merge changed.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from datetime import date
from glob import escape
from typing import Final

import dagster as dg
import duckdb

from almanac.core.errors import WarehouseError
from assets.landed import LANDED
from assets.landed_calendar import NAME as LANDED_CALENDAR
from assets.layout import (
    WAREHOUSE_POOL,
    Layout,
    day_asset,
    day_check,
    list_run_days,
    step_failure,
)
from assets.metadata import (
    SQL,
    Metadata,
    check_days,
    column_schema,
    day_metadata,
    evaluate_day,
    log_problems,
    merge_metadata,
)
from assets.polled import POLLED
from resources.session import LazySession
from warehouse.history.merge import MergeReport, merge
from warehouse.history.partitions import CHANGES as CHANGES
from warehouse.history.partitions import CHANGES_COLUMNS, partition_name
from warehouse.history.warehouse_file import hash_tables, hash_views, read_published, read_records
from warehouse.home import Home
from warehouse.schema.tables import EVENT_VERSIONS

ONE_ROW_PER_VERSION: Final = "one_row_per_version"
FEW_REJECTS: Final = "few_rejects"
_REJECTED_MAX: Final = 0.01
MERGED_TAG: Final = "almanac/merged"
"""The tag of a run whose past days need no refold: they are merged as they were landed."""
_YESTERDAY: Final = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def event_changes(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of the changes of events."""

    @day_asset(
        layout,
        CHANGES,
        group="history",
        kinds={"parquet", "duckdb"},
        pool=WAREHOUSE_POOL,
        description="The changes of the day: versions of events that became known on it. Today's "
        "partition merges new batches and publishes them. A past partition refolds from that day "
        "to the newest, without a request. A day continues the one before it, so the asset is "
        "upstream of itself.",
        deps=[
            *layout.keys([*LANDED, *POLLED.values()]),
            dg.AssetDep(layout.key(LANDED_CALENDAR), partition_mapping=dg.AllPartitionMapping()),
            dg.AssetDep(layout.key(CHANGES), partition_mapping=_YESTERDAY),
        ],
        code_version=code_version(),
        metadata={
            "dagster/column_schema": column_schema(
                column for column in EVENT_VERSIONS.columns if column.name in CHANGES_COLUMNS
            )
        },
        check_specs=day_checks(layout),
    )
    def changes(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        home = layout.resource(context, "home")
        yield record_changes(context, layout, layout.resource(context, "catalog"), home)

    return changes


def day_checks(layout: Layout) -> list[dg.AssetCheckSpec]:
    """Return the checks of the changes of a day."""
    right = (
        "The file of the day has each (event_id, version) once, only versions that became known "
        "on the day, and as many as its batches added."
    )
    return [
        day_check(layout, CHANGES, ONE_ROW_PER_VERSION, right, blocking=True),
        day_check(layout, CHANGES, FEW_REJECTS, "At most 1 % of a day's rows could not be read."),
    ]


def code_version() -> str:
    """Return the version of the declarations that the tables and partitions follow."""
    return f"{hash_tables()[:6]}{hash_views()[:6]}"


def record_changes(
    context: dg.AssetExecutionContext, layout: Layout, catalog: LazySession, home: Home
) -> dg.MaterializeResult[None]:
    """Merge or refold the days of a run, and record each of them with the results of its checks.

    Raises:
        dg.Failure: as `fold`.
    """
    days = list_run_days(context)
    try:
        again = MERGED_TAG not in context.run.tags
        report = fold(home, days, today=catalog.today(), again=again)
    except (WarehouseError, OSError, duckdb.IOException) as error:
        raise step_failure(error) from error
    log_problems(context.log, report.problems)
    for day in days:
        context.add_asset_metadata(_metadata_of(home, day, report), partition_key=day.isoformat())
    record_other_days(context, layout, home, report, recorded=days)
    faults = find_faults(home, days)
    checks = [check_days(context, spec, faults[spec.name]) for spec in day_checks(layout)]
    return dg.MaterializeResult(data_version=_version_of(home, days), check_results=checks)


def find_faults(home: Home, days: Iterable[date]) -> dict[str, dict[date, str | None]]:
    """Return the fault of each day, None without one, by the name of the check."""
    wrong: dict[date, str | None] = {}
    rejects: dict[date, str | None] = {}
    with home.connect() as connection:
        for day in days:
            path = home.parquet.path(partition_name(day.isoformat()))
            rows = different = others = 0
            if path.exists():  # Days without a new version have none.
                facts = {"file": escape(str(path)), "day": day}
                found = connection.execute(SQL["check_day_file"], facts).fetchall()
                ((rows, different, others),) = found
            records = read_records(home.warehouse, since=day, until=day).values()
            added, arrived, rejected = (
                sum(record[name] for record in records)
                for name in ("versions", "arrived", "rejected")
            )
            is_right = rows == different == added and not others
            wrong[day] = (
                None
                if is_right
                else (
                    f"{rows} rows, {different} different versions, {others} of other days, {added} "
                    "added by batches: almanac verify --deep, then almanac rebuild"
                )
            )
            are_few = rejected <= arrived * _REJECTED_MAX
            rejects[day] = None if are_few else f"{rejected:,} of {arrived:,} rows were rejected"
    return {ONE_ROW_PER_VERSION: wrong, FEW_REJECTS: rejects}


def _version_of(home: Home, days: list[date]) -> dg.DataVersion:
    """Return the data version of some days: the content of a day, a hash of several."""
    published = read_published(home.warehouse)
    recorded = {} if published is None else published.days
    contents = [content for day, content in recorded.items() if day in days]
    if len(contents) == 1:
        return dg.DataVersion(contents[0])
    return dg.DataVersion(hashlib.sha256("/".join(contents).encode()).hexdigest())


def record_other_days(
    context: dg.AssetExecutionContext,
    layout: Layout,
    home: Home,
    report: MergeReport,
    *,
    recorded: Collection[date] = (),
) -> None:
    """Record the days that this merge changed, with their checks, but not those in `recorded`."""
    published = read_published(home.warehouse)
    contents = {} if published is None else published.days
    refolded = {day for day, counts in report.refolded.items() if any(counts)}
    others = ({*report.days} | refolded) & contents.keys() - {*recorded}
    for day in sorted(others):
        context.log_event(
            dg.AssetMaterialization(
                layout.key(CHANGES),
                partition=day.isoformat(),
                metadata=_metadata_of(home, day, report),
                tags={"dagster/data_version": contents[day]},
            )
        )
    faults = find_faults(home, sorted(others))
    for spec in day_checks(layout):
        for day, fault in faults[spec.name].items():
            context.log_event(evaluate_day(spec, day, fault))


def _metadata_of(home: Home, day: date, report: MergeReport) -> Metadata:
    """Return the totals of a day, and the metadata of the merge."""
    records = list(read_records(home.warehouse, since=day, until=day).values())
    return {**day_metadata(records), **merge_metadata(report, day)}


def fold(home: Home, days: list[date], *, today: date, again: bool) -> MergeReport:
    """Merge new batches, or refold from the first of the days if it is in the past and `again`.

    Raises:
        WarehouseError: the warehouse can't be continued, or a day has not begun for the service.
    """
    if days[-1] > today:
        raise WarehouseError(
            f"{days[-1]} has not begun for the service, whose day is {today}. The warehouse "
            "was not changed."
        )
    landed = (day for day in days if again and day < today and home.landing.batch_ids(day=day))
    return merge(home, with_events=False, refold_from=next(landed, None))
