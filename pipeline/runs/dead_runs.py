"""Dead runs: those that Dagster's records have as in progress although their process is gone.

Such a run would hold its place in a pool for ever. The process of a run holds a lock (presence);
a run whose lock is free is dead. A run that no process announced may still be starting, which only
a long watch can decide. Runs of other code locations are never judged. Belongs here: finding dead
runs, marking them failed. Finding in SQLite does not import Dagster, which takes seconds; marking
needs an open instance.
"""

from collections.abc import Callable, Iterable
from datetime import UTC
from time import monotonic
from typing import TYPE_CHECKING, Final

from pipeline.runs.place import LOCATION, place_of
from pipeline.runs.presence import forget, presence
from pipeline.runs.store import (
    REPOSITORY_TAG,
    STATUSES_IN_PROGRESS,
    RunInProgress,
    runs_in_progress,
)
from warehouse.home import Home

if TYPE_CHECKING:
    import dagster as dg

MAY_START_WITHIN_S: Final = 300.0
"""The time that a run is watched, in progress but not announced by a process, until it is dead."""
LONGEST_GAP_S: Final = 15.0
"""Of a longer time between two checks only this counts: the machine or the watcher slept."""


class StartWatch:
    """The time that runs have been watched without a process, by a watcher that checks often.

    It uses no wall clock, which can be set and continues while the machine sleeps.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._checked_at = clock()
        self._seen_s: dict[RunInProgress, float] = {}

    def overdue(self, runs: Iterable[RunInProgress]) -> list[RunInProgress]:
        """Record a check of the runs without an announcement; return those that are dead.

        A run whose record changed since then has a process, so its time starts again.
        """
        now = self._clock()
        passed = min(now - self._checked_at, LONGEST_GAP_S)
        self._checked_at = now
        known = self._seen_s
        self._seen_s = {run: known[run] + passed if run in known else 0.0 for run in runs}
        return [run for run, seen_s in self._seen_s.items() if seen_s >= MAY_START_WITHIN_S]


def dead_runs(
    home: Home,
    watch: StartWatch | None = None,
    *,
    instance: "dg.DagsterInstance | None" = None,
) -> list[RunInProgress]:
    """Return the runs that no longer have a process; unannounced ones only with a watch.

    An instance that other homes or deployments may use is not watched: only Dagster knows what
    starts a run there. One without SQLite databases must be open.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    # The records first: a run that ends in between is no longer in progress, and one that starts
    # in between is too young to be dead.
    in_progress = _in_progress(home, instance)
    seen = presence(home)
    dead = [run for run in in_progress if run.run_id in seen.dead - seen.alive]
    if watch is None or not place_of(home).is_own:
        return dead
    announced = seen.dead | seen.alive
    return dead + watch.overdue(
        run for run in in_progress if run.run_id not in announced and run.location == LOCATION
    )


def fail_dead_runs(
    home: Home, instance: "dg.DagsterInstance", watch: StartWatch | None = None
) -> list[RunInProgress]:
    """Mark dead runs as failed, and free their slots; return them.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    dead = dead_runs(home, watch, instance=instance)
    for run in dead:
        record = instance.get_run_by_id(run.run_id)
        if record is not None and not record.is_finished:
            instance.report_run_failed(
                record, "Its process no longer exists: it was killed, or the machine stopped."
            )
    in_progress = frozenset(run.run_id for run in _in_progress(home, instance))
    _free_slots(home, instance, dead, in_progress)
    forget(home, in_progress)
    return dead


def _in_progress(home: Home, instance: "dg.DagsterInstance | None") -> list[RunInProgress]:
    if instance is None or place_of(home).databases is not None:
        return runs_in_progress(home)
    # Imported here, as the module says; an open instance has imported it.
    import dagster as dg

    statuses = [dg.DagsterRunStatus[name] for name in STATUSES_IN_PROGRESS]
    return [
        RunInProgress(
            record.dagster_run.run_id,
            record.dagster_run.job_name,
            record.dagster_run.status.value,
            record.update_timestamp.replace(tzinfo=UTC),
            record.dagster_run.tags_for_storage().get(REPOSITORY_TAG, "").rpartition("@")[2],
        )
        for record in instance.get_run_records(dg.RunsFilter(statuses=statuses))
    ]


def names_of(dead: list[RunInProgress]) -> str:
    """Return the oldest of the runs, its start and the number of others as text."""
    first = min(dead, key=lambda run: run.changed_at)
    more = "" if len(dead) == 1 else f" and {len(dead) - 1} more"
    return (
        f"Run {first.run_id[:8]} of `{first.job}`{more}, started {first.changed_at:%Y-%m-%d %H:%M} "
        "UTC, was killed: its process no longer exists"
    )


def _free_slots(
    home: Home,
    instance: "dg.DagsterInstance",
    dead: Iterable[RunInProgress],
    in_progress: frozenset[str],
) -> None:
    """Free the pool slots of dead runs; in the home's own instance, of all runs that ended."""
    storage = instance.event_log_storage
    ended = {run.run_id for run in dead}
    if place_of(home).is_own:
        # Steps of older versions took slots, which outlive their runs.
        ended = storage.get_concurrency_run_ids() - in_progress
    for run_id in ended:
        storage.free_concurrency_slots_for_run(run_id)
