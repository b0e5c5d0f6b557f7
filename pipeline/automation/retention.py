"""The job that deletes old records, and its nightly schedule.

It does not depend on the daily pull, so that a pull that fails for weeks does not stop it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.retention import owner_tags, prune_home
from pipeline.settings import Settings
from warehouse.errors import WarehouseError

PRUNE: Final = "prune"
PRUNE_SCHEDULE: Final = "prune_schedule"
AT_NIGHT: Final = "40 3 * * *"


def prune_job(
    layout: Layout, settings: Settings, clock: Callable[[], datetime]
) -> dg.JobDefinition:
    """Return the job that does the same as `almanac prune`."""

    @dg.op(
        name=layout.name("delete_old_records"),
        description="Deletes old runs, logs and files. Sends no request.",
        required_resource_keys=layout.names("home"),
    )
    def delete(context: dg.OpExecutionContext) -> None:
        try:
            pruned = prune_home(
                layout.resource(context, "home"),
                settings,
                clock(),
                instance=context.instance,
                report=context.log.info,
            )
        except WarehouseError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        found = [f"{kind.count:,} {kind.what}" for kind in pruned if kind.count]
        freed = sum(kind.bytes for kind in pruned)
        context.log.info("Deleted %s; %.1f MB", ", ".join(found) or "nothing", freed / 1e6)

    @dg.job(
        name=layout.name(PRUNE),
        description="Delete old runs, logs and files. A run stays while it has the latest "
        "materialisation of an asset or partition.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(settings.key_prefix, settings.name_prefix),
    )
    def job() -> None:
        delete()

    return job


def prune_schedule(layout: Layout, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the job, once a night."""
    return dg.ScheduleDefinition(
        name=layout.name(PRUNE_SCHEDULE),
        job=job,
        cron_schedule=AT_NIGHT,
        execution_timezone="UTC",
        description="Every night at 03:40 UTC.",
        default_status=layout.schedule_status(PRUNE_SCHEDULE),
    )
