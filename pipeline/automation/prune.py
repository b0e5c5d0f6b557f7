"""The job `prune`: deletes old runs of Dagster, old logs and left files.

`almanac run` deletes the files, too. Landing and history are never deleted. Each step can be
repeated: after a kill, the next prune continues. Ticks are deleted by Dagster (`retention` in
dagster.yaml).
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg

from almanac.core.errors import WarehouseError
from almanac.core.files import find_leftovers
from almanac.reading.attached_file import list_abandoned_links
from assets.layout import Layout
from pipeline.automation.run_decisions import ENDED_STATUSES
from pipeline.instance import is_own, owner_tags
from pipeline.settings import Settings
from warehouse.history.merge import ABANDONED_S
from warehouse.home import Home

PRUNE: Final = "prune"
PRUNE_SCHEDULE: Final = "prune_schedule"
AT_NIGHT: Final = "40 3 * * *"
RUNS_OF_A_JOB: Final = 100
"""The most runs that are kept, however new: a run takes about 0.4 MB."""
_PAGE: Final = 1000


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
