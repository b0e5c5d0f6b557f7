"""Dead runs: those that Dagster's records have as in progress although their process is gone.

Such a run would hold its place in a pool for ever. The process of a run holds a lock (presence);
a run whose lock is free is dead. A started run that no process announced is dead after some minutes
without a change; runs that never start are left to Dagster's run monitoring, and so are runs of
other code locations. Belongs here: finding dead runs, marking them failed. Finding in SQLite does
not import Dagster, which takes seconds; marking needs an open instance.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
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

ANNOUNCED_WITHIN: Final = timedelta(minutes=5)
"""A started run is announced within a second; one that is not by then has no process."""


def dead_runs(
    home: Home,
    now: datetime | None = None,
    *,
    instance: "dg.DagsterInstance | None" = None,
) -> list[RunInProgress]:
    """Return the runs that no longer have a process; unannounced ones only with the time.

    In an instance that other homes or deployments may use, unannounced runs are never judged: only
    Dagster knows what starts a run there. One without SQLite databases must be open.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    # The records first: a run that ends in between is no longer in progress, and one that starts
    # in between is too young to be dead.
    in_progress = _in_progress(home, instance)
    seen = presence(home)
    dead = [run for run in in_progress if run.run_id in seen.dead - seen.alive]
    if now is None or not place_of(home).is_own:
        return dead
    announced = seen.dead | seen.alive
    return dead + [
        run
        for run in in_progress
        if run.run_id not in announced
        and run.location == LOCATION
        and run.status == "STARTED"
        and now - run.changed_at > ANNOUNCED_WITHIN
    ]


def fail_dead_runs(
    home: Home, instance: "dg.DagsterInstance", now: datetime | None = None
) -> list[RunInProgress]:
    """Mark dead runs as failed, and free their slots; return them.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    dead = dead_runs(home, now, instance=instance)
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
