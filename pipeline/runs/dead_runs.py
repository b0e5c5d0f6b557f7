"""Dead runs: those that Dagster's records have as in progress although their process is gone.

Such a run would hold its place in a pool for ever. The process of a run holds a lock (presence);
a run whose lock is free is dead. A run that no process announced may still be starting, which only
a long watch can decide. Belongs here: finding dead runs, marking them failed. Finding does not
import Dagster, which takes seconds; marking needs an open instance.
"""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

from pipeline.runs.presence import forget, presence
from pipeline.runs.store import RunInProgress, runs_in_progress
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


def dead_runs(home: Home, watch: StartWatch | None = None) -> list[RunInProgress]:
    """Return the runs that no longer have a process; unannounced ones only with a watch.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    # The records first: a run that ends in between is no longer in progress, and one that starts
    # in between is too young to be dead.
    in_progress = runs_in_progress(home)
    seen = presence(home)
    dead = [run for run in in_progress if run.run_id in seen.dead - seen.alive]
    if watch is None:
        return dead
    announced = seen.dead | seen.alive
    return dead + watch.overdue(run for run in in_progress if run.run_id not in announced)


def fail_dead_runs(
    home: Home, instance: "dg.DagsterInstance", watch: StartWatch | None = None
) -> list[RunInProgress]:
    """Mark dead runs as failed, and free their slots; return them.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    dead = dead_runs(home, watch)
    for run in dead:
        record = instance.get_run_by_id(run.run_id)
        if record is not None and not record.is_finished:
            instance.report_run_failed(
                record, "Its process no longer exists: it was killed, or the machine stopped."
            )
    _free_slots(home, instance)
    forget(home, frozenset(run.run_id for run in runs_in_progress(home)))
    return dead


def names_of(dead: list[RunInProgress]) -> str:
    """Return the oldest of the runs, its start and the number of others as text."""
    first = min(dead, key=lambda run: run.changed_at)
    more = "" if len(dead) == 1 else f" and {len(dead) - 1} more"
    return (
        f"Run {first.run_id[:8]} of `{first.job}`{more}, started {first.changed_at:%Y-%m-%d %H:%M} "
        "UTC, was killed: its process no longer exists"
    )


def _free_slots(home: Home, instance: "dg.DagsterInstance") -> None:
    """Free the pool slots of runs not in progress; steps of older versions took slots."""
    storage = instance.event_log_storage
    holding = storage.get_concurrency_run_ids()
    if holding:
        for run_id in holding - {run.run_id for run in runs_in_progress(home)}:
            storage.free_concurrency_slots_for_run(run_id)
