"""Dead runs: Dagster's records have them as in progress, and their process is gone.

Such a run would hold its place in a pool permanently. `dagster/running/<process>.lock` in the home
lists the runs of one process, one on each line, and is locked until that process ends, however it
ends: a listed run whose lock is free is dead. A started run that no process announced is dead after
some minutes without a change. Dagster's run monitoring handles runs that never start; runs of other
code locations are left alone. This module imports Dagster only where it needs an instance.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

from pipeline.runs.place import REPOSITORY, REPOSITORY_TAG, place_of
from warehouse.files.locks import try_lock
from warehouse.home import Home

if TYPE_CHECKING:
    import dagster as dg

ANNOUNCED_WITHIN: Final = timedelta(minutes=5)
"""A run is announced within a second of its start; without an announcement it has no process."""
FOLDER: Final = "running"
_held: Final[dict[Path, IO[bytes]]] = {}
"""The locks of this process, by home. They stay open, since a run still writes after its steps."""


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run without a process. `changed_at` is the time of its last change."""

    run_id: str
    job: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Presence:
    """The runs that processes announced: of living processes, and of ended ones."""

    alive: frozenset[str]
    ended: frozenset[str]


def announce(home: Home, run_id: str) -> None:
    """Record that this process executes a run, for as long as the process lives."""
    folder = (home.dagster / FOLDER).resolve()
    lock = _held.get(folder)
    if lock is None or not Path(lock.name).exists():
        lock = _held[folder] = _new_lock(folder)
    lock.write(f"{run_id}\n".encode())
    lock.flush()


def read_presence(home: Home) -> Presence:
    """Return the runs of living processes, and the runs of ended processes."""
    alive: set[str] = set()
    ended: set[str] = set()
    for path, lock in _locks(home):
        (ended if try_lock(lock, shared=True) else alive).update(_runs_in(path))
    return Presence(frozenset(alive), frozenset(ended - alive))


def find_dead_runs(
    home: Home,
    instance: "dg.DagsterInstance",
    now: datetime | None = None,
    *,
    is_start: bool = False,
) -> list[DeadRun]:
    """Return the runs that no longer have a process; unannounced ones only with the time.

    At the start of the code server (`is_start`) every unannounced run is dead, even before its
    first step: its process was a child of the previous code server. In an instance that other
    homes or deployments may use, unannounced runs are never judged: only Dagster knows what starts
    a run there.
    """
    # The records first: a run that ends in between is no longer in progress, and one that starts
    # in between is too young to be dead.
    records = _in_progress(instance)
    seen, is_own = read_presence(home), place_of(home).is_own
    dead: list[DeadRun] = []
    for record in records:
        run, changed_at = record.dagster_run, record.update_timestamp.replace(tzinfo=UTC)
        is_unannounced = (
            now is not None
            and is_own
            and run.run_id not in seen.alive | seen.ended
            and run.tags_for_storage().get(REPOSITORY_TAG) == REPOSITORY
            and (
                is_start or (run.status.value == "STARTED" and now - changed_at > ANNOUNCED_WITHIN)
            )
        )
        if run.run_id in seen.ended or is_unannounced:
            dead.append(DeadRun(run.run_id, run.job_name, changed_at))
    return dead


def fail_dead_runs(
    home: Home,
    instance: "dg.DagsterInstance",
    now: datetime | None = None,
    *,
    is_start: bool = False,
) -> list[DeadRun]:
    """Mark dead runs as failed, and return them."""
    dead = find_dead_runs(home, instance, now, is_start=is_start)
    for found in dead:
        run = instance.get_run_by_id(found.run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(
                run, "Its process no longer exists: it was killed, or the machine stopped."
            )
    in_progress = {record.dagster_run.run_id for record in _in_progress(instance)}
    for path, lock in _locks(home):
        if try_lock(lock) and in_progress.isdisjoint(_runs_in(path)):
            path.unlink(missing_ok=True)
    return dead


def describe_dead_runs(dead: list[DeadRun]) -> str:
    """Return the oldest of the runs, its start and the number of others as text."""
    first = min(dead, key=lambda run: run.changed_at)
    more = "" if len(dead) == 1 else f" and {len(dead) - 1} more"
    return (
        f"Run {first.run_id[:8]} of `{first.job}`{more}, started {first.changed_at:%Y-%m-%d %H:%M} "
        "UTC, was killed: its process no longer exists"
    )


def _in_progress(instance: "dg.DagsterInstance") -> "list[dg.RunRecord]":
    import dagster as dg

    statuses = dg.DagsterRunStatus
    started = [statuses.NOT_STARTED, statuses.STARTING, statuses.STARTED, statuses.CANCELING]
    return list(instance.get_run_records(dg.RunsFilter(statuses=started)))


def _new_lock(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f"{os.getpid()}-{uuid4().hex}.lock"
        lock = path.open("ab")
        # Between the two lines another process may remove it as the lock of an ended one.
        if try_lock(lock) and path.exists():
            return lock
        lock.close()


def _locks(home: Home) -> Iterator[tuple[Path, IO[bytes]]]:
    for path in sorted((home.dagster / FOLDER).glob("*.lock")):
        try:
            lock = path.open("rb")
        except FileNotFoundError:
            continue
        with lock:
            yield path, lock


def _runs_in(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split()
    except FileNotFoundError:
        return []
