"""The job that deletes old records, and the schedule that starts it every night.

It runs beside the daily pull and not after it: a pull that fails for weeks must not stop it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import dagster as dg

from assets.layout import Layout
from pipeline.retention.files import prune_deliveries, prune_files
from pipeline.retention.lengths import Retention
from pipeline.retention.owned import Owned, owner_tags
from pipeline.retention.prune import prune_instance
from warehouse.errors import WarehouseError
from warehouse.home import Home

PRUNE: Final = "prune"
OP: Final = "delete_old_records"
PRUNE_SCHEDULE: Final = "prune_schedule"
_AT_NIGHT: Final = "40 3 * * *"


def prune_job(
    layout: Layout,
    owned: Callable[[], Owned],
    retention: Retention,
    clock: Callable[[], datetime],
) -> dg.JobDefinition:
    """Return the job that does what `almanac prune` does; `owned` names what is the home's."""

    @dg.op(
        name=layout.name(OP),
        description="Deletes old runs, ticks, logs and files. Sends no request.",
        required_resource_keys=layout.names("home"),
    )
    def delete(context: dg.OpExecutionContext) -> None:
        home: Home = layout.resource(context, "home")
        now = clock()
        try:
            pruned = prune_files(home, retention, now)
        except WarehouseError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        pruned += prune_instance(context.instance, owned(), retention, now)
        try:
            pruned += prune_deliveries(home, retention, now)
        except WarehouseError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        found = [f"{kind.count:,} {kind.what}" for kind in pruned if kind.count]
        freed = sum(kind.bytes for kind in pruned)
        context.log.info("Deleted %s; %.1f MB", ", ".join(found) or "nothing", freed / 1e6)

    @dg.job(
        name=layout.name(PRUNE),
        description="Delete old runs, ticks and logs. The latest materialisation of each "
        "partition stays.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout),
    )
    def job() -> None:
        delete()

    return job


def prune_schedule(layout: Layout, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the job, once a night."""
    return dg.ScheduleDefinition(
        name=layout.name(PRUNE_SCHEDULE),
        job=job,
        cron_schedule=_AT_NIGHT,
        execution_timezone="UTC",
        description="Every night at 03:40 UTC.",
        default_status=layout.schedule_status(PRUNE_SCHEDULE),
    )
