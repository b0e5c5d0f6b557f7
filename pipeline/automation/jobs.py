"""The jobs, and the daily schedule.

`daily` pulls every feed and publishes; `merge` publishes landed batches. A run is one process,
since a process for each step would take seconds to import.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg

from assets.calendar import landed_calendar
from assets.changes import event_changes
from assets.checks import published_checks
from assets.landed import LANDED
from assets.published import published_tables

DAILY: Final = "daily"
MERGE: Final = "merge"
CALENDAR: Final = "calendar"
EXPORT_IS_OUT: Final = "20 0 * * *"
"""The service makes the export at 00:05 UTC; at this time every plan can pull it."""
_CHECKS: Final = dg.AssetSelection.checks(published_checks)
_PUBLISHED: Final = dg.AssetSelection.assets(published_tables)

daily_job: Final = dg.define_asset_job(
    DAILY,
    selection=dg.AssetSelection.assets(*LANDED, event_changes) | _PUBLISHED | _CHECKS,
    description="One day: land every feed, merge, publish and check the tables.",
    executor_def=dg.in_process_executor,
)
merge_job: Final = dg.define_asset_job(
    MERGE,
    selection=_PUBLISHED | _CHECKS,
    description="Merge landed batches, then publish and check. Sends no request to the service.",
    executor_def=dg.in_process_executor,
)
calendar_job: Final = dg.define_asset_job(
    CALENDAR,
    selection=dg.AssetSelection.assets(landed_calendar),
    description="All events of the chosen months: to pull them again, or on a plan without the "
    "export.",
    executor_def=dg.in_process_executor,
)


def daily_schedule(
    clock: Callable[[], datetime], service_now: Callable[[], datetime]
) -> dg.ScheduleDefinition:
    """Return the schedule that runs the job for the service's day, once a day of the machine.

    If the clocks agree, that is once the export is out.
    """

    @dg.schedule(
        name="daily_schedule",
        cron_schedule=EXPORT_IS_OUT,
        job=daily_job,
        execution_timezone="UTC",
        description="Every day at 00:20 UTC, once the export is out.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
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
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    return schedule
