"""What an instance says of runs that are under way, and of the last ones. Read alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

UNDER_WAY: Final = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_LOOKED_BACK: Final = 8
_DOUBLED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class LastRuns:
    """When the newest run of a job was asked for, and how many failed since one succeeded."""

    newest_at: datetime | None = None
    failures: int = 0


def under_way(instance: dg.DagsterInstance, job_names: Sequence[str]) -> str | None:
    """Return the id of a run of one of the jobs that has not ended."""
    for job_name in job_names:
        filters = dg.RunsFilter(job_name=job_name, statuses=list(UNDER_WAY))
        runs = instance.get_runs(filters=filters, limit=1)
        if runs:
            return runs[0].run_id
    return None


def last_runs(instance: dg.DagsterInstance, job_name: str) -> LastRuns:
    """Return how the newest runs of a job went."""
    filters = dg.RunsFilter(job_name=job_name)
    records = instance.get_run_records(filters=filters, limit=_LOOKED_BACK)
    failures = 0
    for record in records:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    newest = records[0].create_timestamp.astimezone(UTC) if records else None
    return LastRuns(newest, failures)


def doubled(first: timedelta, times: int, *, longest: timedelta) -> timedelta:
    """Return a wait that was doubled so often, and is never over the longest."""
    wait: timedelta = first * 2 ** min(max(times, 0), _DOUBLED_MAX)
    return min(longest, wait)
