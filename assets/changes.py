"""The change log of the lake, a partition for each observed day."""

from datetime import date
from typing import Final

import dagster as dg

from assets.landed import LANDED
from assets.layout import Layout
from assets.metadata import log_problems, merge_metadata, outcome_metadata
from assets.partitions import WAREHOUSE_POOL, YESTERDAY, day_asset, days_of
from resources.session import LazySession
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge
from warehouse.history.merge_report import MergeReport
from warehouse.history.outcomes import Outcome
from warehouse.home import Home

CHANGES: Final = "event_changes"


def event_changes(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of the change log."""

    @day_asset(
        layout,
        CHANGES,
        group="lake",
        pool=WAREHOUSE_POOL,
        kinds={"parquet", "duckdb"},
        description="The changes of the day: versions of events that became known on it. Today's "
        "partition merges new batches. A past partition refolds from that day to the newest, "
        "without a request.",
        deps=[
            *layout.keys(LANDED),
            dg.AssetDep(layout.key(CHANGES), partition_mapping=YESTERDAY),
        ],
    )
    def changes(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        return record_changes(
            context, layout.resource(context, "catalog"), layout.resource(context, "home")
        )

    return changes


def record_changes(
    context: dg.AssetExecutionContext, catalog: LazySession, home: Home
) -> dg.MaterializeResult[None]:
    """Merge or refold the days of a run, and record each of them.

    Raises:
        dg.Failure: as `fold`.
    """
    days = days_of(context)
    try:
        report = fold(home, days, today=catalog.today())
    except WarehouseError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    log_problems(context.log, report.problems)
    for day in days:
        context.add_asset_metadata(
            {**outcome_metadata(_outcomes_of(report, day)), **merge_metadata(report)},
            partition_key=day.isoformat(),
        )
    return dg.MaterializeResult()


def fold(home: Home, days: list[date], *, today: date) -> MergeReport:
    """Merge what is not merged yet, or refold from the first of the days if it is in the past.

    Raises:
        WarehouseError: the lake can't be continued, nothing was landed on a past day, or a day
            has not begun for the service.
    """
    if days[-1] > today:
        raise WarehouseError(
            f"{days[-1]} has not begun for the service, whose day is {today}. The lake was not "
            "changed."
        )
    past = [day for day in days if day < today]
    if not past:
        return merge(home, publishing=False)
    missing = [day for day in past if not home.landing.batch_ids(day=day)]
    if missing:
        raise WarehouseError(
            f"Nothing was landed on {missing[0]}"
            + (f" and {len(missing) - 1} more of these days" if len(missing) > 1 else "")
            + ", so there is nothing to refold. The lake was not changed."
        )
    return merge(home, publishing=False, refold_from=past[0])


def _outcomes_of(report: MergeReport, day: date) -> list[Outcome]:
    return [outcome for outcome in report.outcomes if outcome.manifest.observed_at.date() == day]
