"""Runs whose process is gone, which Dagster's records still have as under way.

Such a run would hold its place in a pool for ever: what executes a run holds a lock (run_presence),
and a run whose lock is free is dead. A run that no process ever announced may still be starting;
only who watches for long can tell. Belongs here: finding them, marking them failed. Finding asks
nothing of Dagster, which takes seconds to import; marking takes an open instance.
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
"""A run may be under way in the records so long, watched, before a process announces it."""
LONGEST_GAP_S: Final = 15.0
"""More than this between two sightings is time in which the machine or the watcher stood still."""


class StartWatch:
    """How long runs have been seen without a process, by a watcher that lives and looks often.

    No clock of the day counts: that one can be set, and goes on while the machine sleeps.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._checked_at = clock()
        self._seen_s: dict[RunInProgress, float] = {}

    def overdue(self, runs: Iterable[RunInProgress]) -> list[RunInProgress]:
        """Note a sighting of the runs that nobody announced; returns those that never will be.

        A run whose record has changed since has a process: for it the time begins anew.
        """
        now = self._clock()
        passed = min(now - self._checked_at, LONGEST_GAP_S)
        self._checked_at = now
        known = self._seen_s
        self._seen_s = {run: known[run] + passed if run in known else 0.0 for run in runs}
        return [run for run, seen_s in self._seen_s.items() if seen_s >= MAY_START_WITHIN_S]


def dead_runs(home: Home, watch: StartWatch | None = None) -> list[RunInProgress]:
    """Return the runs that have no process any more; unannounced ones only with a watch.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    # The records first: a run that ends in between is not under way, and one that begins is young.
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
    """Mark the runs failed that have no process any more, and free what they hold; returns them.

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
    """Return how many there are, which is the oldest, and since when, in words."""
    first = min(dead, key=lambda run: run.changed_at)
    more = "" if len(dead) == 1 else f" and {len(dead) - 1} more"
    return (
        f"Run {first.run_id[:8]} of `{first.job}`{more}, started {first.changed_at:%Y-%m-%d %H:%M} "
        "UTC, was killed: its process no longer exists"
    )


def _free_slots(home: Home, instance: "dg.DagsterInstance") -> None:
    """Free the slots of pools whose runs are not under way: steps of older versions took some."""
    storage = instance.event_log_storage
    holding = storage.get_concurrency_run_ids()
    if holding:
        for run_id in holding - {run.run_id for run in runs_in_progress(home)}:
            storage.free_concurrency_slots_for_run(run_id)
