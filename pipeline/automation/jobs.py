"""The jobs, and the daily schedule.

A run is one process, since a process for each step would take seconds to start.
"""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any, Final

import dagster as dg

from assets.event_changes import CHANGES
from assets.landed import LANDED, name_asset
from assets.landed_calendar import NAME as LANDED_CALENDAR
from assets.layout import Layout
from assets.polled import POLLED
from assets.published_tables import PUBLISHED
from pipeline.instance import owner_tags

DAILY: Final = "daily"
MERGE: Final = "merge"
CALENDAR: Final = "calendar"
POLL: Final = "poll"
DELIVERIES: Final = "deliveries"
EXPORT_IS_OUT_AT: Final = time(0, 20)
"""The service makes the export at 00:05 UTC; at this time every plan can pull it."""


def asset_jobs(layout: Layout, today: date) -> dict[str, Any]:
    """Return the jobs over assets by their names without prefix. A run of each is one process.

    `dagster job execute` and `dg launch` without a partition take `today`, the service's day.
    """
    # Only in their process: a server would keep the day, and add it to the range of a backfill.
    is_command = not {"execute", "launch"}.isdisjoint(sys.argv[1:3])
    default_day = {"dagster/partition": today.isoformat()} if is_command else {}
    tables = layout.keys(table.name for table in PUBLISHED)
    published = dg.AssetSelection.assets(*tables)
    # With the changes between them, the tables are recorded after what was landed.
    pushed = dg.AssetSelection.assets(*layout.keys([name_asset("deliveries"), CHANGES]))
    days = dg.AssetSelection.assets(*layout.keys([*LANDED, CHANGES]))
    selections = {
        DAILY: (days | published, "One day: land every feed, merge, publish and check the tables."),
        MERGE: (
            published,
            "Merge landed batches, then publish and check. Sends no request to the service.",
        ),
        DELIVERIES: (
            pushed | published,
            "Land the webhook deliveries in the inbox, merge, publish and check.",
        ),
        CALENDAR: (
            dg.AssetSelection.assets(layout.key(LANDED_CALENDAR)),
            "All events of the chosen months: to pull them again, or on a plan without the export.",
        ),
        POLL: (
            dg.AssetSelection.assets(*layout.keys(POLLED.values())),
            "Pull data that changes within a day: near events, cancellations, single events. "
            "The sensor `polls` requests it; `almanac budget` shows when and why.",
        ),
    }
    return {
        name: dg.define_asset_job(
            layout.name(name),
            selection=selection,
            description=description,
            # A poll has one step, for which another process is a waste.
            executor_def=dg.in_process_executor if name == POLL else layout.executor,
            tags=owner_tags(layout) | (default_day if name == DAILY else {}),
        )
        for name, (selection, description) in selections.items()
    }


def daily_schedule(
    layout: Layout,
    clock: Callable[[], datetime],
    service_now: Callable[[], datetime],
    pulled: Callable[[date], bool],
) -> dg.ScheduleDefinition:
    """Return the schedule that runs the job once a day, by the machine's clock, for the service's
    day.

    If the clocks agree, that is once the export is out. A day that was `pulled` since then, at the
    first start or by `almanac run`, is not pulled again.
    """

    @dg.schedule(
        name=layout.name("daily_schedule"),
        cron_schedule=f"{EXPORT_IS_OUT_AT.minute} {EXPORT_IS_OUT_AT.hour} * * *",
        job_name=layout.name(DAILY),
        execution_timezone="UTC",
        description="Every day at 00:20 UTC, once the export is out.",
        default_status=layout.schedule_status("daily_schedule"),
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Any:
        ahead = service_now() - clock()
        day = (context.scheduled_execution_time.astimezone(UTC) + ahead).date()
        today = (clock() + ahead).date()
        if day < today:
            return dg.SkipReason(
                f"The pull of {day} was missed: the service gives today's data only. The next "
                f"one is on {today} or the day after, at 00:20 UTC."
            )
        if pulled(day):
            return dg.SkipReason(f"{day} was pulled already. The next pull is in a day.")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    return schedule
