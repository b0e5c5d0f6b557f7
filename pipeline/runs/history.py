"""What Dagster's records say of work that failed or hangs: runs, ticks, backfills, the daemon.

    state/runs.json    the same, as the daemon noted it of an instance without SQLite databases

Belongs here: the records, which failures count, that note. Does not: where they are read
(history_store; for other storages pipeline/automation), how they are warned of (pipeline/health).
This module does not import Dagster.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from warehouse.files.documents import put_note, read_note
from warehouse.home import Home

REPORTED_FOR: Final = timedelta(days=7)
"""A failure that nobody tried again is reported for so long."""
LONG: Final = timedelta(hours=3)
"""The longest run of a job other than a backfill takes minutes."""
ASSET_JOB: Final = "__ASSET_JOB"
"""Dagster's name for the job of assets that were materialised by hand."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that succeeded or failed. `part` is its partition or range, or empty."""

    run_id: str
    job: str
    part: str
    at: datetime
    failed: bool
    backfill_id: str | None = None
    location: str = ""
    """The code location that executed it; empty for a run in a process of its own."""

    @property
    def work(self) -> tuple[str, str]:
        """What it did: the job, and its partition or the backfill that it is part of."""
        return self.job, self.part or self.backfill_id or ""


@dataclass(frozen=True, slots=True)
class FailedWork:
    """A job, with its partition or range, whose newest run failed.

    `times` counts the failures since its last success, of which the first was at `since`.
    """

    job: str
    part: str
    run_id: str
    since: datetime
    at: datetime
    times: int = 1
    role: str = ""
    """The job's name without a prefix, empty for assets that were materialised by hand."""
    error: str = ""
    """The first line of the error, empty if it is not known."""

    @property
    def name(self) -> str:
        job = "assets" if self.job == ASSET_JOB else self.job
        return f"{job} of {self.part}" if self.part else job


@dataclass(frozen=True, slots=True)
class FailedTicks:
    """A schedule or sensor whose newest ticks failed; `times` of them, since the last good one."""

    name: str
    since: datetime
    times: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class OpenBackfill:
    """A backfill of Dagster that has not ended, and when anything last happened in it."""

    backfill_id: str
    what: str
    since: datetime
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class LongRun:
    """A run that has not ended for `LONG` since it was created. `status` is Dagster's."""

    run_id: str
    job: str
    status: str
    since: datetime


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What was found. `unknown` says why nothing could be read, empty if all is known.

    `reported_at` is when each daemon was last reported, by its type; empty if none ever ran.
    """

    failed: tuple[FailedWork, ...] = ()
    ticks: tuple[FailedTicks, ...] = ()
    backfills: tuple[OpenBackfill, ...] = ()
    long: tuple[LongRun, ...] = ()
    reported_at: tuple[tuple[str, datetime], ...] = ()
    unknown: str = ""


def with_errors(
    history: RunHistory, changed: Callable[[str], str], *, leave_out: str = ""
) -> RunHistory:
    """Return a history whose texts of errors are changed, without failed runs of a job."""
    return replace(
        history,
        failed=tuple(
            replace(work, error=changed(work.error))
            for work in history.failed
            if not leave_out or work.role != leave_out
        ),
        ticks=tuple(replace(ticks, error=changed(ticks.error)) for ticks in history.ticks),
    )


def failed_work(runs: Iterable[EndedRun], roles: Mapping[str, str]) -> list[FailedWork]:
    """Return the work whose newest run failed, oldest failure first.

    `runs` are in the order in which they were made, `roles` the names of our jobs, each with its
    name without a prefix; runs of other jobs are left out. A success of any job with the same
    partition also counts for assets that were materialised by hand.
    """
    failing: dict[tuple[str, str], FailedWork] = {}
    for run in runs:
        job, part = run.work
        if job not in roles and job != ASSET_JOB:
            continue
        if not run.failed:
            failing.pop(run.work, None)
            if part:
                failing.pop((ASSET_JOB, part), None)
            continue
        before = failing.pop(run.work, None)
        failing[run.work] = FailedWork(
            job=job,
            part=run.part,
            run_id=run.run_id,
            since=run.at if before is None else before.since,
            at=run.at,
            times=1 if before is None else before.times + 1,
            role=roles.get(job, ""),
        )
    return sorted(failing.values(), key=lambda work: work.since)


def part_of(first: str | None, last: str | None) -> str:
    """Return the partition of a run, or its range of partitions, as text."""
    return f"{first} to {last}" if last not in (None, first) else first or ""


def part_of_tags(tags: Mapping[str, str]) -> str:
    """Return the partition of a run with some tags, or its range of partitions, as text."""
    first = tags.get("dagster/partition") or tags.get("dagster/asset_partition_range_start")
    return part_of(first, tags.get("dagster/asset_partition_range_end"))


def first_line(text: str) -> str:
    """Return the first line of an error without the module of its class."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    head, colon, rest = line.partition(": ")
    if colon and head.replace(".", "").replace("_", "").isalnum() and "." in head:
        name = head.rpartition(".")[2]
        # A failure of our own says all in its text.
        return rest if name == "Failure" else f"{name}: {rest}"
    return line


_NOTE: Final = "runs.json"


@dataclass(frozen=True, slots=True)
class _Noted:
    at: datetime
    history: RunHistory


def note_history(home: Home, history: RunHistory, now: datetime) -> None:
    """Note what an instance says that can't be read from outside quickly."""
    put_note(home.state_storage, _NOTE, _Noted(now, history))


def noted_history(home: Home, unknown: str) -> RunHistory:
    """Return what was noted; without a note it is unknown, for the given reason."""
    noted = read_note(home.state_storage, _NOTE, _Noted)
    return RunHistory(unknown=unknown) if noted is None else noted.history
