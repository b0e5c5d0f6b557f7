"""The jobs, and the two schedules.

A run is one process, since a process for each step would take seconds to start. The job `prune`
deletes old runs of Dagster, old logs and left files; `almanac run` deletes the files, too. Landing
and history are never deleted. Each step can be repeated: after a kill, the next prune continues.
Ticks are deleted by Dagster (`retention` in dagster.yaml).
"""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg

from almanac.core.errors import WarehouseError
from almanac.core.files import find_leftovers
from almanac.reading.attached_file import list_abandoned_links
from assets.event_changes import CHANGES
from assets.landed import LANDED, name_asset
from assets.landed_calendar import NAME as LANDED_CALENDAR
from assets.layout import Layout
from assets.polled import POLLED
from assets.published_tables import PUBLISHED
from pipeline.instance import is_own, owner_tags
from pipeline.settings import Settings
from warehouse.history.merge import ABANDONED_S
from warehouse.home import Home

DAILY: Final = "daily"
MERGE: Final = "merge"
CALENDAR: Final = "calendar"
POLL: Final = "poll"
DELIVERIES: Final = "deliveries"
ENDED_STATUSES: Final = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
EXPORT_IS_OUT_AT: Final = time(0, 20)
"""The service makes the export at 00:05 UTC; at this time every plan can pull it."""
PRUNE: Final = "prune"
PRUNE_SCHEDULE: Final = "prune_schedule"
AT_NIGHT: Final = "40 3 * * *"
RUNS_OF_A_JOB: Final = 100
"""The most runs that are kept, however new: a run takes about 0.4 MB."""
_PAGE: Final = 1000


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
        if not layout.observed_days.has_partition_key(day.isoformat()):
            return dg.SkipReason(
                f"{day} is not a partition by this machine's clock. The sensor `pulls` requests "
                "the pull when the service and this machine are on that day."
            )
        if pulled(day):
            return dg.SkipReason(f"{day} was pulled already. The next pull is in a day.")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    return schedule


def prune_runs(home: Home, layout: Layout, before: datetime, instance: dg.DagsterInstance) -> int:
    """Delete the runs of a home that ended before a time or are too many; return their number."""
    tags = {} if is_own(home) else owner_tags(layout)
    old = _find_old_runs(instance, before, tags)
    for run_id in old:
        instance.delete_run(run_id)
        # Dagster leaves the output of a run, and its database in SQLite.
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        for path in (home.dagster / "history/runs").glob(f"{run_id}.db*"):
            path.unlink()
    return len(old)


def _find_old_runs(
    instance: dg.DagsterInstance, before: datetime, tags: dict[str, str]
) -> list[str]:
    """Return the runs with the tags that ended before a time or are too many, the oldest first.

    A run stays if it is the newest of its job, since sensors ask for it, or if it has the latest
    materialisation of an asset or partition, since Dagster deletes that with the run.
    """
    old, counts, latest = [], Counter[str](), _find_latest_runs(instance)
    for record in instance.get_run_records(dg.RunsFilter(statuses=list(ENDED_STATUSES), tags=tags)):
        run = record.dagster_run
        counts[run.job_name] += 1
        is_old = datetime.fromtimestamp(record.end_time or 0, UTC) < before
        if counts[run.job_name] > 1 and (is_old or counts[run.job_name] > RUNS_OF_A_JOB):
            old.append(run.run_id)
    return [run_id for run_id in reversed(old) if run_id not in latest]


def _find_latest_runs(instance: dg.DagsterInstance) -> set[str]:
    found: dict[tuple[dg.AssetKey, str | None], str] = {}
    for key in instance.get_asset_keys():
        cursor, has_more = None, True
        while has_more:
            page = instance.fetch_materializations(key, limit=_PAGE, cursor=cursor)
            for record in page.records:  # The newest first.
                found.setdefault((key, record.partition_key), record.run_id)
            cursor, has_more = page.cursor, page.has_more
    return set(found.values())


def prune_files(home: Home, before: datetime) -> dict[str, int]:
    """Delete old logs, and files left by processes that were killed; return how many of each kind.

    The merge lock excludes living writers. Pulls write to landing without it, so only old files are
    deleted there.

    Raises:
        WarehouseError: another process merges.
    """
    with home.merge_lock():
        kinds: dict[str, Iterable[Path]] = {
            "request logs": (
                path
                for path in (home.state / "requests").glob("*.jsonl")
                if path.stem < before.date().isoformat()
            ),
            "unfinished files": (
                *home.root.glob(".unfinished-*"),
                *list_abandoned_links(home.root),
                *home.parquet.unfinished(),
                *home.root.glob(".next-*"),
                *home.landing.storage.unfinished(older_than_s=ABANDONED_S),
                *home.landing.never_landed(older_than_s=ABANDONED_S),
                *home.state.glob("almanac-verify-*"),
                *(path for path in home.state.glob("spill/**/*") if path.is_file()),
            ),
            "foreign .wal files": (
                path
                for path in home.root.glob(f"{home.warehouse.name}.wal.foreign-*")
                if path.name.partition(".foreign-")[2] < f"{before:%Y%m%d}"
            ),
            "temporary folders": find_leftovers(),
        }
        found = {what: list(paths) for what, paths in kinds.items()}
        for path in (path for paths in found.values() for path in paths):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {what: len(paths) for what, paths in found.items()}


def prune_schedule(
    layout: Layout, settings: Settings, clock: Callable[[], datetime]
) -> dg.ScheduleDefinition:
    """Return the schedule of the job, once a night."""
    keep_for = timedelta(days=settings.keep_days)

    @dg.op(
        name=layout.name("delete_old_records"),
        description="Deletes old runs, logs and files. Sends no request.",
        required_resource_keys=layout.names("home"),
    )
    def delete(context: dg.OpExecutionContext) -> None:
        home, before = layout.resource(context, "home"), clock() - keep_for
        try:
            counts = prune_files(home, before)
            counts["Dagster runs"] = prune_runs(home, layout, before, context.instance)
        except WarehouseError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        found = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        context.log.info("Deleted %s", found or "nothing")

    @dg.job(
        name=layout.name(PRUNE),
        description="Delete old runs, logs and files. A run stays while it has the latest "
        "materialisation of an asset or partition.",
        executor_def=dg.in_process_executor,
        tags=owner_tags(layout),
    )
    def job() -> None:
        delete()

    return dg.ScheduleDefinition(
        name=layout.name(PRUNE_SCHEDULE),
        job=job,
        cron_schedule=AT_NIGHT,
        execution_timezone="UTC",
        description="Every night at 03:40 UTC.",
        default_status=layout.schedule_status(PRUNE_SCHEDULE),
    )
