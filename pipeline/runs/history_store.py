"""The history of runs in the SQLite databases of the Dagster instance in use, without Dagster.

Belongs here: reading them, in the few milliseconds that `status` may take. Does not: what counts
as a failure (history), damage of the databases (store). Nothing is written.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from pipeline.runs.history import (
    LONG,
    REPORTED_FOR,
    EndedRun,
    FailedTicks,
    FailedWork,
    LongRun,
    OpenBackfill,
    RunHistory,
    failed_work,
    first_line,
    noted_history,
    part_of,
)
from pipeline.runs.place import CONFIG, LOCATION, InstancePlace, place_of
from pipeline.runs.store import INDEX, RUNS, SCHEDULES, SQL, instant, opened
from warehouse.home import Home

_TICKS: Final = 50
_TICKS_OF: Final = timedelta(days=1)
"""A schedule or sensor without a tick for so long is gone, or the daemon is: that is said apart."""
_ERRORS_SHOWN: Final = 20


def history_of(home: Home, roles: Mapping[str, str], now: datetime) -> RunHistory:
    """Return what failed or hangs. `roles` are our jobs, each with its name without a prefix.

    Nothing is found where no database is made yet.

    Raises:
        sqlite3.Error: a database can't be read.
        RunRecordsUnusable: the `dagster.yaml` of the instance can't be read.
    """
    place = place_of(home)
    if place.databases is None:
        why = f"{place.folder / CONFIG} names {place.storage}, and no daemon has noted them yet"
        return noted_history(home, why)
    runs = place.databases / RUNS
    schedules = place.databases / SCHEDULES
    if not runs.exists():
        return RunHistory()
    with opened(runs) as store:
        ended = list(_ended(store, now - REPORTED_FOR))
        long = _rows(store, "list_long_runs", before=_text(now - LONG))
        backfills = tuple(_backfills(store)) if place.is_own else ()
        reported_at = tuple((kind, instant(at)) for kind, at in _rows(store, "list_heartbeats"))
    ours = (run for run in ended if _is_ours(run.job, run.location, place, roles))
    failed = failed_work(ours, roles)
    ticks: tuple[FailedTicks, ...] = ()
    if schedules.exists() and place.is_own:
        with opened(schedules) as store:
            ticks = tuple(_ticks(store, now - _TICKS_OF))
    return RunHistory(
        failed=tuple(
            replace(work, error=_error(place.databases, work)) if number < _ERRORS_SHOWN else work
            for number, work in enumerate(failed)
        ),
        ticks=ticks,
        backfills=backfills,
        long=tuple(
            LongRun(run_id, job, status, instant(at))
            for run_id, job, status, at, label in long
            if job in roles and _is_ours(job, _location(label), place, roles)
        ),
        reported_at=reported_at,
    )


def _ended(store: sqlite3.Connection, since: datetime) -> Iterator[EndedRun]:
    """Yield the failed runs since an instant, and the successes after the first of them."""
    failed = _rows(store, "list_failed_runs", since=_text(since))
    if not failed:
        return
    successes = _rows(store, "list_successes_after", number=failed[0][0])
    numbered = [(row, True) for row in failed] + [(row, False) for row in successes]
    for row, is_failed in sorted(numbered, key=lambda pair: pair[0][0]):
        _, run_id, job, first, last, backfill_id, at, label = row
        location = (label or "").rpartition("@")[2]
        yield EndedRun(
            run_id, job, part_of(first, last), instant(at), is_failed, backfill_id, location
        )


def _is_ours(job: str, location: str, place: InstancePlace, roles: Mapping[str, str]) -> bool:
    """Whether a run is of Almanac: others may have code locations in the same instance.

    There only the names of our jobs tell; what they materialise by hand is not known to be ours.
    """
    return job in roles if not place.is_own else location in ("", LOCATION)


def _location(label: str | None) -> str:
    return (label or "").rpartition("@")[2]


def _error(databases: Path, work: FailedWork) -> str:
    """Return the first line of the error of a run; empty if its records are gone."""
    path = (databases / INDEX).with_name(f"{work.run_id}.db")
    if not path.exists():
        return ""
    try:
        with opened(path) as store:
            events = [_decoded(event) for (event,) in _rows(store, "list_failures")]
    except (sqlite3.Error, OSError):
        return ""
    lines = (_line_of(event) for event in events)
    return next((line for line in lines if line), "")


def _line_of(event: Mapping[str, Any]) -> str:
    """Return the first line of the cause of a failed step or run."""
    found = _inner(event, "dagster_event")
    data = _inner(found, "event_specific_data")
    said = _inner(data, "user_failure_data").get("description")
    if said:
        return first_line(str(said))
    error = _inner(data, "error")
    while cause := _inner(error, "cause"):
        error = cause
    return first_line(str(error.get("message") or found.get("message") or ""))


def _backfills(store: sqlite3.Connection) -> Iterator[OpenBackfill]:
    for backfill_id, body, requested_at, run_at in _rows(store, "list_unfinished_backfills"):
        since = instant(requested_at)
        moved_at = since if run_at is None else max(since, instant(run_at))
        what = str(_decoded(body).get("title") or "")
        yield OpenBackfill(backfill_id, what, since, moved_at)


def _ticks(store: sqlite3.Connection, since: datetime) -> Iterator[FailedTicks]:
    """Yield the schedules and sensors whose newest ended tick failed."""
    for (selector,) in _rows(store, "list_instigators"):
        newest = _rows(
            store, "list_newest_ticks", selector=selector, since=_text(since), ticks=_TICKS
        )
        failed = []
        for tick in newest:
            if tick[0] != "FAILURE":
                break
            failed.append(tick)
        if failed:
            record = _decoded(failed[0][2])
            error = _inner(record, "error")
            while cause := _inner(error, "cause"):
                error = cause
            yield FailedTicks(
                name=str(record.get("job_name") or "a sensor"),
                since=instant(failed[-1][1]),
                times=len(failed),
                error=first_line(str(error.get("message") or "")),
            )


def _decoded(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except ValueError:
        return {}


def _inner(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}


def _rows(store: sqlite3.Connection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return store.execute(SQL[name], values).fetchall()


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ")
