"""Which runs have ended for long enough, and deleting them.

A run is deleted record last: if the process is killed, the next prune finds the run again and goes
on. Belongs here: the choice, the order of deletion, captured output. Does not: events (events), the
databases of SQLite (sqlite_files).
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

from pipeline.retention.events import EventLog, in_chunks
from pipeline.retention.lengths import Pruned, Retention
from pipeline.retention.owned import Owned
from pipeline.retention.sqlite_files import RunFiles
from pipeline.runs.history import ASSET_JOB, REPORTED_FOR, part_of_tags
from pipeline.runs.store import BACKFILL_TAG

_PAGE: Final = 500
_AT_ONCE: Final = 20
"""Runs whose events are deleted in one transaction, which blocks writers of a SQLite database."""
_ENDED: Final = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
_UNFINISHED: Final = (
    BulkActionStatus.REQUESTED,
    BulkActionStatus.CANCELING,
    BulkActionStatus.FAILING,
)


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run that ended. `ended_at` is aware UTC; `backfill` is the backfill that started it.

    `number` is the order in which the runs of an instance were created, `part` is its partition or
    range, or empty.
    """

    run_id: str
    number: int
    job: str
    succeeded: bool
    ended_at: datetime
    backfill: str | None = None
    part: str = ""

    @property
    def work(self) -> tuple[str, str]:
        """What it did: as the warning of failed runs compares runs."""
        return self.job, self.part or self.backfill or ""


def spent_runs(
    runs: Iterable[OwnRun],
    retention: Retention,
    now: datetime,
    *,
    needed: frozenset[str] = frozenset(),
) -> list[OwnRun]:
    """Return the runs to delete, the oldest first.

    The newest of each job stays, since sensors ask when their job last ran; so do `needed` runs and
    those of `needed` backfills, and a success by which a failed run is no longer warned of.
    """
    newest_first = sorted(runs, key=lambda run: (run.ended_at, run.number), reverse=True)
    needed |= _successes_after_failures(newest_first, now)
    seen: set[str] = set()
    kept = {True: 0, False: 0}
    spent: list[OwnRun] = []
    for run in newest_first:
        is_newest = run.job not in seen
        seen.add(run.job)
        is_old = run.ended_at < retention.runs_before(now, succeeded=run.succeeded)
        is_surplus = kept[run.succeeded] >= retention.runs_max
        if is_newest or not needed.isdisjoint((run.run_id, run.backfill or run.run_id)):
            kept[run.succeeded] += 1
        elif is_old or is_surplus:
            spent.append(run)
        else:
            kept[run.succeeded] += 1
    return spent[::-1]


def _successes_after_failures(newest_first: Iterable[OwnRun], now: datetime) -> frozenset[str]:
    """Return the runs that did what had failed so lately that it would be warned of again."""
    newest: dict[tuple[str, str], OwnRun] = {}
    found: set[str] = set()
    for run in newest_first:
        newest.setdefault(run.work, run)
        if run.succeeded:
            # It also counts for assets that were materialised by hand.
            newest.setdefault((ASSET_JOB, run.work[1]), run)
        elif run.ended_at >= now - REPORTED_FOR and newest[run.work].succeeded:
            found.add(newest[run.work].run_id)
    return frozenset(found)


def ended_runs(instance: dg.DagsterInstance, owned: Owned) -> list[OwnRun]:
    """Return the runs of a home that have ended."""
    found: dict[str, OwnRun] = {}
    for runs_filter in owned.filters():
        for record in _records(instance, runs_filter):
            run = record.dagster_run
            if owned.has_run(run):
                ended_at = (
                    record.update_timestamp.replace(tzinfo=UTC)
                    if record.end_time is None
                    else datetime.fromtimestamp(record.end_time, UTC)
                )
                succeeded = run.status is dg.DagsterRunStatus.SUCCESS
                found[run.run_id] = OwnRun(
                    run.run_id,
                    record.storage_id,
                    run.job_name,
                    succeeded,
                    ended_at,
                    run.tags.get(BACKFILL_TAG),
                    part_of_tags(run.tags),
                )
    return list(found.values())


def needed_runs(instance: dg.DagsterInstance, events: EventLog) -> frozenset[str]:
    """Return the ids of what must stay: the newest run, that of the newest event, open backfills.

    SQLite gives the id of a deleted newest row to the next one, and cursors of Dagster's daemon
    would take the new row for one that they have seen.
    """
    newest = [run.run_id for run in instance.get_runs(limit=1)]
    open_backfills = [
        backfill.backfill_id
        for backfill in instance.get_backfills(filters=BulkActionsFilter(statuses=_UNFINISHED))
    ]
    last = events.newest_run()
    return frozenset((*newest, *open_backfills, *([last] if last else [])))


class RunDeletion:
    """Deletes runs with all that is theirs. If `dry_run`, it only counts."""

    def __init__(
        self, instance: dg.DagsterInstance, events: EventLog, files: RunFiles, *, dry_run: bool
    ) -> None:
        self._instance = instance
        self._events = events
        self._files = files
        self._dry_run = dry_run

    def delete(self, runs: list[OwnRun]) -> list[Pruned]:
        """Delete runs; return the counts of runs, their events and their databases."""
        events = 0
        captured = Pruned("output of runs", 0)
        databases = Pruned("run databases", 0)
        for chunk in in_chunks(runs, _AT_ONCE):
            ids = [run.run_id for run in chunk]
            captured = _sum(captured, self.delete_output(ids))
            events += self._events.forget_runs(ids)
            databases = _sum(databases, self._files.delete(ids))
            self._events.free_slots(ids)
            for run_id in [] if self._dry_run else ids:
                self._instance.run_storage.delete_run(run_id)
        return [Pruned("Dagster runs", len(runs)), Pruned("events", events), databases, captured]

    def delete_output(self, run_ids: Iterable[str]) -> Pruned:
        """Delete the captured output of runs, and count what lies in local files."""
        ids = list(run_ids)
        found = self._files.delete_output(ids)
        for run_id in [] if self._dry_run or self._files.has_output else ids:
            # Not every store of output can delete; what it keeps is in the company's bucket.
            with suppress(NotImplementedError):
                self._instance.compute_log_manager.delete_logs(prefix=[run_id, "compute_logs"])
        return found


def runs_with_old_output(runs: Iterable[OwnRun], retention: Retention, now: datetime) -> list[str]:
    """Return the runs whose captured output is too old, though they may stay themselves."""
    before = now - timedelta(days=retention.compute_logs_days)
    return [run.run_id for run in runs if run.ended_at < before]


def _records(instance: dg.DagsterInstance, runs_filter: dg.RunsFilter) -> Iterator[dg.RunRecord]:
    """Yield the ended runs that a filter finds, page by page."""
    filters = _of_ended_runs(runs_filter)
    cursor: str | None = None
    while True:
        page = instance.get_run_records(filters=filters, limit=_PAGE, cursor=cursor)
        yield from page
        if len(page) < _PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def _of_ended_runs(runs_filter: dg.RunsFilter) -> dg.RunsFilter:
    """Return the filter, for ended runs alone."""
    return dg.RunsFilter(
        job_name=runs_filter.job_name, tags=runs_filter.tags, statuses=list(_ENDED)
    )


def _sum(first: Pruned, second: Pruned) -> Pruned:
    return Pruned(first.what, first.count + second.count, first.bytes + second.bytes)
