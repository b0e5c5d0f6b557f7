"""Deletions of `almanac prune` and the job `prune`: old runs of Dagster, logs and left files.

Landing and history are never deleted. Each step can be repeated: after a kill, the next prune
continues. Dagster is imported only to delete runs. Ticks are deleted by Dagster (`retention` in
dagster.yaml).
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from almanac.reading.attached_file import abandoned_links
from almanac.reading.temporary import leftovers
from pipeline.runs.place import BACKFILL_TAG, LOCATION, REPOSITORY_TAG, place_of
from pipeline.runs.store import BESIDE, INDEX, STORES
from pipeline.settings import Settings
from resources.inbox.inbox_file import InboxReader, InboxWriter, inbox_path
from resources.inbox.progress import read_progress
from warehouse.errors import LockHeld
from warehouse.history.merge import ABANDONED_S
from warehouse.home import Home

if TYPE_CHECKING:
    import dagster as dg

OWNER_TAG: Final = "almanac/owner"
"""The tag of the runs of a home's jobs. Homes in one instance have different values."""
_ENDED: Final = ("SUCCESS", "FAILURE", "CANCELED")
_OPEN_BACKFILLS: Final = ("REQUESTED", "CANCELING", "FAILING")
_YOUNG: Final = timedelta(days=1)
"""A database without a record of its run may belong to a run that just starts."""
_CHUNK: Final = 500
_REPORTED_EVERY: Final = 100
_SET_ASIDE: Final = re.compile(r"\.(?:foreign|damaged)-(\d{8})T")
"""The end of the name of a file that was set aside on a day, or last written on it."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The number of deleted items of one kind; `bytes` is 0 where they are not counted."""

    what: str
    count: int
    bytes: int = 0


def owner_tags(key_prefix: Iterable[str], name_prefix: str) -> dict[str, str]:
    """Return the tags of the jobs of a home."""
    return {OWNER_TAG: "/".join([*key_prefix, f"{name_prefix}almanac"])}


def prune_home(
    home: Home,
    settings: Settings,
    now: datetime,
    *,
    instance: "dg.DagsterInstance | None" = None,
    days: int | None = None,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> list[Pruned]:
    """Delete old files of a home, its old runs in an instance, and the bodies of old deliveries.

    `days` replaces the lengths of the settings. `report` receives the progress as a line of text.

    Raises:
        WarehouseError: another process merges, or a file of the inbox can't be used.
    """
    pruned = _prune_files(
        home, now - timedelta(days=days or settings.keep_request_logs_days), now, dry_run
    )
    if instance is not None:
        pruned += _prune_runs(home, settings, now, instance, days, dry_run, report)
    before = now - timedelta(days=settings.keep_deliveries_days if days is None else days)
    return pruned + _prune_deliveries(home, before, now, dry_run)


def _prune_runs(
    home: Home,
    settings: Settings,
    now: datetime,
    instance: "dg.DagsterInstance",
    days: int | None,
    dry_run: bool,
    report: Callable[[str], None],
) -> list[Pruned]:
    place = place_of(home)
    tags = owner_tags(settings.key_prefix, settings.name_prefix)
    records = _ended_runs(instance, tags, is_own=place.is_own)
    kept = _latest_runs(instance) | _open_backfills(instance)
    old = [
        record.dagster_run.run_id
        for record in find_old_runs(
            records,
            succeeded_before=now - timedelta(days=days or settings.keep_runs_days),
            failed_before=now - timedelta(days=days or settings.keep_failed_runs_days),
            most=settings.keep_runs,
        )
        if kept.isdisjoint((record.dagster_run.run_id, record.dagster_run.tags.get(BACKFILL_TAG)))
    ]
    if place.is_own:
        old += _unrecorded_runs(home, instance, now)
    size = 0
    for number, run_id in enumerate(old, start=1):
        paths = [*_files_of_run(home, run_id)] if place.is_own else []
        size += sum(map(_size, paths))
        if dry_run:
            continue
        instance.delete_run(run_id)
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if not place.is_own:
            # Not every store of captured output can delete.
            with suppress(NotImplementedError):
                instance.compute_log_manager.delete_logs(prefix=[run_id, "compute_logs"])
        if number % _REPORTED_EVERY == 0:
            report(f"{number:,} of {len(old):,} runs deleted")
    return [Pruned("Dagster runs", len(old), size)]


def find_old_runs(
    records: Iterable["dg.RunRecord"],
    *,
    succeeded_before: datetime,
    failed_before: datetime,
    most: int,
) -> list["dg.RunRecord"]:
    """Return the runs that ended too long ago, and those beyond a number for each job and outcome.

    The newest run of each job is never old: sensors ask when their job last ran, and Dagster would
    give its row numbers to later runs and events.
    """
    counts: dict[tuple[str, bool], int] = {}
    jobs: set[str] = set()
    old = []
    for record in sorted(records, key=_ended_at, reverse=True):
        job, succeeded = record.dagster_run.job_name, record.dagster_run.is_success
        before = succeeded_before if succeeded else failed_before
        count = counts.get((job, succeeded), 0)
        if job in jobs and (_ended_at(record) < before or count >= most):
            old.append(record)
        else:
            counts[job, succeeded] = count + 1
        jobs.add(job)
    return old[::-1]


def _ended_at(record: "dg.RunRecord") -> datetime:
    if record.end_time is not None:
        return datetime.fromtimestamp(record.end_time, UTC)
    return record.update_timestamp.replace(tzinfo=UTC)


def _ended_runs(
    instance: "dg.DagsterInstance", tags: Mapping[str, str], *, is_own: bool
) -> list["dg.RunRecord"]:
    """Return the ended runs of a home: those with its tag.

    In the home's own instance, also the runs without it, as a person starts them in the UI, unless
    another code location executed them.
    """
    import dagster as dg

    statuses = [dg.DagsterRunStatus[name] for name in _ENDED]
    if not is_own:
        return list(instance.get_run_records(dg.RunsFilter(statuses=statuses, tags=tags)))
    return [
        record
        for record in instance.get_run_records(dg.RunsFilter(statuses=statuses))
        if record.dagster_run.tags.get(OWNER_TAG, tags[OWNER_TAG]) == tags[OWNER_TAG]
        and _location_of(record.dagster_run.tags_for_storage()) in (LOCATION, "")
    ]


def _location_of(tags: Mapping[str, str]) -> str:
    return tags.get(REPOSITORY_TAG, "").rpartition("@")[2]


def _latest_runs(instance: "dg.DagsterInstance") -> set[str]:
    """Return the runs that made the latest materialisation of an asset or of a partition."""
    import dagster as dg

    materialised = dg.DagsterEventType.ASSET_MATERIALIZATION
    found = set()
    for key in instance.get_asset_keys():
        latest = instance.get_latest_materialization_event(key)
        found |= set() if latest is None else {latest.run_id}
        storage = instance.event_log_storage
        ids = sorted(storage.get_latest_storage_id_by_partition(key, materialised).values())
        for start in range(0, len(ids), _CHUNK):
            chosen = dg.AssetRecordsFilter(key, storage_ids=ids[start : start + _CHUNK])
            found |= {
                record.run_id
                for record in instance.fetch_materializations(chosen, limit=_CHUNK).records
            }
    return found


def _open_backfills(instance: "dg.DagsterInstance") -> set[str]:
    return {
        backfill.backfill_id
        for backfill in instance.get_backfills()
        if backfill.status.value in _OPEN_BACKFILLS
    }


def _unrecorded_runs(home: Home, instance: "dg.DagsterInstance", now: datetime) -> list[str]:
    """Return the runs that have a database and no record, as Dagster's deletion leaves them."""
    before = (now - _YOUNG).timestamp()
    files = (home.dagster / INDEX).parent.glob("*-*-*-*-*.db")
    found = {path.stem for path in files if path.stat().st_mtime < before}
    return sorted(run_id for run_id in found if not instance.has_run(run_id))


def _files_of_run(home: Home, run_id: str) -> Iterator[Path]:
    """Yield the database and the captured output of a run in the home's own instance."""
    database = (home.dagster / INDEX).with_name(f"{run_id}.db")
    paths = [database, *(database.with_name(database.name + end) for end in BESIDE)]
    yield from (path for path in [*paths, home.dagster / "storage" / run_id] if path.exists())


def _prune_files(home: Home, before: datetime, now: datetime, dry_run: bool) -> list[Pruned]:
    """Delete files that were set aside, old logs, and files left by processes that were killed.

    The merge lock excludes living writers. Pulls write to landing without it, so only old files are
    deleted there.
    """
    stores = {(home.dagster / name).parent for name in STORES}
    with home.merge_lock():
        kinds: dict[str, Iterable[Path]] = {
            "request logs": (
                path
                for path in (home.state / "requests").glob("*.jsonl")
                if path.stem < before.date().isoformat()
            ),
            "unfinished files": (
                *home.root.glob(".unfinished-*"),
                *abandoned_links(home.root),
                *home.parquet.unfinished(),
                *home.root.glob(".next-*"),
                *home.landing.storage.unfinished(older_than_s=ABANDONED_S),
                *home.landing.never_landed(older_than_s=ABANDONED_S),
                *home.state.glob("almanac-verify-*"),
                *(path for path in home.state.glob("spill/*") if _has_files(path)),
            ),
            "foreign .wal files": _set_aside(
                home.root.glob(f"{home.warehouse.name}.wal.foreign-*"), before
            ),
            "damaged databases": _set_aside(
                (path for folder in stores for path in folder.glob("*.damaged-*")), before
            ),
            "temporary folders": leftovers(),
        }
        return [_delete(what, paths, dry_run) for what, paths in kinds.items()]


def _set_aside(paths: Iterable[Path], before: datetime) -> Iterator[Path]:
    for path in paths:
        day = _SET_ASIDE.search(path.name)
        if day is not None and day[1] < f"{before:%Y%m%d}":
            yield path


def _has_files(folder: Path) -> bool:
    return folder.is_file() or any(path.is_file() for path in folder.rglob("*"))


def _delete(what: str, paths: Iterable[Path], dry_run: bool) -> Pruned:
    count = size = 0
    for path in sorted(paths):
        count, size = count + 1, size + _size(path)
        if not dry_run:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Pruned(what, count, size)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _prune_deliveries(home: Home, before: datetime, now: datetime, dry_run: bool) -> list[Pruned]:
    """Clear the bodies of old landed deliveries. A receiver that runs clears them itself."""
    if not inbox_path(home).exists():
        return []
    landed_to = read_progress(home).landed_to
    count, size = InboxReader(home).old_bodies(before=before, landed_to=landed_to)
    if count and not dry_run:
        try:
            with InboxWriter.open(home, lambda: now) as writer:
                while writer.clear_bodies(before=before, landed_to=landed_to):
                    pass
        except LockHeld:
            count = size = 0
    return [Pruned("bodies of landed deliveries", count, size)]
