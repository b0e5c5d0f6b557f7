"""Common parts of the sensors: a decision to request a run, the state of a sensor, and job
histories.

A sensor reads local state, passes it to a plain function `decide_…`, and returns the decision.
Nothing here writes. Timestamps are UTC and aware.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Self

import dagster as dg
import msgspec

ENDED_STATUSES: Final = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
IN_PROGRESS_STATUSES: Final = tuple({*dg.DagsterRunStatus} - {*ENDED_STATUSES})
_NEWEST_RUNS: Final = 8
_DOUBLED_MAX: Final = 10


class SensorState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sensor between two evaluations. Its cursor is this state as JSON."""

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Self:
        """Return the state in a cursor; a missing or damaged cursor gives the initial state."""
        try:
            return msgspec.json.decode(cursor or "{}", type=cls)
        except msgspec.MsgspecError:
            return cls()

    def cursor(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a sensor to request a run or none.

    `reason` explains it and names the next step. `state` is the new state; None keeps the cursor.
    """

    reason: str
    request: dg.RunRequest | None = None
    state: SensorState | None = None

    def result(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return dg.SensorResult(
            run_requests=[] if self.request is None else [self.request],
            skip_reason=self.reason if self.request is None else None,
            cursor=context.cursor if self.state is None else self.state.cursor(),
        )


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The creation time of a job's newest run, and the failures since the last success."""

    newest_at: datetime | None = None
    failures: int = 0

    def next_attempt_at(self, first: timedelta, longest: timedelta) -> datetime | None:
        """Return the time of the next run: `first` after the newest, doubled by each failure."""
        if self.newest_at is None:
            return None
        return self.newest_at + double_wait(first, self.failures, longest=longest)


_OPENED: Final[list[tuple[object, dg.DagsterInstance]]] = []


def find_instance(context: dg.SensorEvaluationContext) -> dg.DagsterInstance:
    """Return the instance of a sensor, opened once in a process and not for each tick.

    With SQLite, Dagster 1.13 reads its migration scripts whenever it opens an instance. It takes
    0.1 s and leaks 18 KB of memory.
    """
    ref = context.instance_ref
    if ref is None:
        return context.instance
    for known, instance in _OPENED:
        if known == ref:
            return instance
    _OPENED.append((ref, dg.DagsterInstance.from_ref(ref)))
    return _OPENED[-1][1]


def read_job_history(instance: dg.DagsterInstance, job_name: str) -> JobHistory:
    """Return the outcome of the newest runs of a job."""
    filters = dg.RunsFilter(job_name=job_name)
    records = instance.get_run_records(filters=filters, limit=_NEWEST_RUNS)
    failures = 0
    for record in records:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    newest = records[0].create_timestamp.astimezone(UTC) if records else None
    return JobHistory(newest, failures)


def find_run_in_progress(instance: dg.DagsterInstance, job_names: Iterable[str]) -> str | None:
    """Return the id of a run of one of the jobs that has not ended, None if there is none."""
    for job_name in sorted(job_names):
        filters = dg.RunsFilter(job_name=job_name, statuses=list(IN_PROGRESS_STATUSES))
        runs = instance.get_runs(filters=filters, limit=1)
        if runs:
            return runs[0].run_id
    return None


def has_run(
    instance: dg.DagsterInstance, job_name: str, day: date, *statuses: dg.DagsterRunStatus
) -> bool:
    """Whether a run of a job for a day has one of the statuses."""
    filters = dg.RunsFilter(
        job_name=job_name, tags={"dagster/partition": day.isoformat()}, statuses=list(statuses)
    )
    return bool(instance.get_runs(filters=filters, limit=1))


def double_wait(first: timedelta, times: int, *, longest: timedelta) -> timedelta:
    """Return a wait doubled a number of times, at most the longest."""
    wait: timedelta = first * 2 ** min(max(times, 0), _DOUBLED_MAX)
    return min(longest, wait)
