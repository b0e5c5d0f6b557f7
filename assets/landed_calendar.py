"""The calendar: all events by the month in which they take place.

It is for backfills: on a plan without the export, or to pull events again. The months of a run are
one backfill. Each month is recorded as soon as it is complete, so a killed run loses none.
"""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Final

import dagster as dg
from pydantic import Field

from almanac.core.errors import WarehouseError
from assets.landed import GROUP
from assets.layout import (
    CATALOG_POOL,
    Layout,
    check_price,
    max_requests_field,
    record_days,
    step_failure,
    without_beta_warnings,
)
from assets.metadata import (
    RESUMES_AT,
    Metadata,
    backfill_metadata,
    log_problems,
)
from catalog.contract.plans import next_month
from resources.calendar_backfill import Backfill, choose_source
from resources.errors import CatalogError, Defer
from resources.scopes import find_day_start
from resources.session import NOT_IN_PLAN, LazySession
from warehouse.batch_problems import list_landed_problems
from warehouse.home import Home
from warehouse.landing.batches import FORMAT

NAME: Final = "landed_calendar"
FIRST_MONTH: Final = "2017-01-01"
MONTHS_AHEAD: Final = 24

# Dagster counts by the machine's month. The offset adds this month and two years ahead, since by
# default only ended months are partitions, and one month more for a service whose day is ahead.
EVENT_MONTHS: Final = dg.MonthlyPartitionsDefinition(FIRST_MONTH, end_offset=MONTHS_AHEAD + 2)


class CalendarConfig(dg.Config):
    """The options of a calendar backfill."""

    max_requests: int = max_requests_field()
    source: str = Field(
        default="auto",
        pattern="^(auto|list|export)$",
        description="Page the list or stream the export; auto takes the one with fewer requests.",
    )
    begin: str = Field(
        default="", description="First event date, if not the first day of the first month."
    )
    end: str = Field(
        default="", description="Last event date, if not the last day of the last month."
    )

    def span(self, months: Sequence[date]) -> tuple[date, date]:
        """Return the first and last event date of the backfill of some months."""
        last = next_month(find_day_start(months[-1])).date() - timedelta(days=1)
        return (
            date.fromisoformat(self.begin) if self.begin else months[0],
            date.fromisoformat(self.end) if self.end else last,
        )


def landed_calendar(layout: Layout) -> dg.AssetsDefinition:
    """Return the asset of the calendar."""
    # Skippable: each month is recorded when complete, and Dagster would record it again at the end.
    spec = dg.AssetSpec(
        layout.key(NAME),
        skippable=True,
        description="All events by the month in which they take place. Use it to pull them again, "
        "or if the plan has no export. Fails before it pulls if it takes more requests than "
        "`max_requests`.",
        code_version=str(FORMAT),
        **layout.attributes(GROUP, {"json"}),
    )
    with without_beta_warnings():

        @dg.multi_asset(
            name=layout.name(NAME),
            specs=[spec],
            partitions_def=EVENT_MONTHS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=layout.name(CATALOG_POOL),
            required_resource_keys=layout.names("home", "catalog_for_backfills"),
        )
        def calendar(
            context: dg.AssetExecutionContext, config: CalendarConfig
        ) -> Iterator[dg.MaterializeResult[None]]:
            months = [date.fromisoformat(key) for key in sorted(context.partition_keys)]
            session = layout.resource(context, "catalog_for_backfills")
            try:
                backfill_months(context, config, session, layout.resource(context, "home"), months)
            except (CatalogError, WarehouseError) as error:
                raise step_failure(error) from error
            yield from ()

    return calendar


def backfill_months(
    context: dg.AssetExecutionContext,
    config: CalendarConfig,
    session: LazySession,
    home: Home,
    months: list[date],
) -> None:
    """Land the events of successive months, and record each month with its outcome.

    Raises:
        CatalogError, WarehouseError: the backfill failed; months recorded before it stay recorded.
        dg.Failure: as `check_price`.
    """
    work = Backfill(session.service(), home.state_storage, *config.span(months))
    recorded = set[date]()
    try:
        prices = work.prices()
    except Defer as error:
        work.defer(error)
    else:
        by = choose_source(prices, config.source)
        if by is None:
            raise dg.Failure("The plan has no export: set source to list.", allow_retries=False)
        context.log.info("By the %s", by)
        check_price(context, work.service, prices[by], config.max_requests)
        for landed in work.run(by):
            recorded |= {month.date() for month in landed}
            record_days(context, {month.date(): backfill_metadata(work) for month in landed})
    for note in work.notes:
        context.log.warning("%s", note)
    log_problems(context.log, list_landed_problems(batch.manifest for batch in work.landed))
    nothing: Metadata = {"rows": 0, "outcome": f"{NOT_IN_PLAN} {work.service.plan.name}"}
    if work.deferred is not None:
        happened, resume_at = work.deferred.happened, work.deferred.resume_at
        at = f"{resume_at:%Y-%m-%d %H:%M} UTC"
        context.log.warning("%s. The rows so far are landed; the rest resumes at %s", happened, at)
        timestamp = dg.MetadataValue.timestamp(resume_at)
        nothing = {"outcome": f"deferred: {happened}", RESUMES_AT: timestamp}
    # Without these, Dagster would count all assets downstream as failed.
    record_days(context, {month: nothing for month in months if month not in recorded})
