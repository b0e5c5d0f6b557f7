"""Runs whose process is gone, which Dagster's records still have as under way.

Such a run would hold its place in a pool for ever: what executes a run holds a lock (run_presence),
and a run whose lock is free is dead. Belongs here: finding them, marking them failed. Finding asks
nothing of Dagster, which takes seconds to import; marking takes an open instance.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pipeline.run_presence import forget, presence
from pipeline.run_store import RunUnderWay, runs_under_way
from resources.retries import utc_now
from warehouse.home import Home

if TYPE_CHECKING:
    import dagster as dg

MAY_START_WITHIN: Final = timedelta(seconds=180)
"""A run may be under way in the records so long before its process says that it has it."""


def dead_runs(home: Home, now: datetime) -> list[RunUnderWay]:
    """Return the runs that have no process any more.

    Raises:
        RunRecordsDamaged: the records can't be read.
    """
    # The records first: a run that ends in between is not under way, and one that begins is young.
    under_way = runs_under_way(home)
    if not under_way:
        return []
    seen = presence(home)
    return [
        run
        for run in under_way
        if run.run_id not in seen.alive
        and (run.run_id in seen.dead or now - run.changed_at > MAY_START_WITHIN)
    ]


def fail_dead_runs(home: Home, instance: "dg.DagsterInstance") -> list[RunUnderWay]:
    """Mark the runs failed that have no process any more, and free what they hold; returns them.

    Raises:
        RunRecordsDamaged: the records can't be read.
    """
    dead = dead_runs(home, utc_now())
    for run in dead:
        record = instance.get_run_by_id(run.run_id)
        if record is not None and not record.is_finished:
            instance.report_run_failed(
                record, "Its process is gone: it was killed, or the machine went down."
            )
    _free_slots(home, instance)
    forget(home, frozenset(run.run_id for run in runs_under_way(home)))
    return dead


def told(dead: list[RunUnderWay]) -> str:
    """Return how many there are, which is the oldest, and since when, in words."""
    first = min(dead, key=lambda run: run.changed_at)
    more = "" if len(dead) == 1 else f" and {len(dead) - 1} more"
    return (
        f"Run {first.run_id[:8]} of `{first.job}`{more}, begun {first.changed_at:%Y-%m-%d %H:%M} "
        "UTC, was cut off: no process has it any more"
    )


def _free_slots(home: Home, instance: "dg.DagsterInstance") -> None:
    """Free the slots of pools whose runs are not under way: steps of older versions took some."""
    storage = instance.event_log_storage
    holding = storage.get_concurrency_run_ids()
    if holding:
        for run_id in holding - {run.run_id for run in runs_under_way(home)}:
            storage.free_concurrency_slots_for_run(run_id)
