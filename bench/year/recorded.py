"""Runs of each kind, executed once by the real jobs over the sandbox's whole catalog, as templates.

A template is what such a run leaves: its record, its rows in the index, its own database. Belongs
here: executing and reading them. Does not: storing them at other times (replay).
"""

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import dagster as dg

from assets.metadata import poll_metadata
from pipeline.build import build_definitions
from pipeline.home_location import locate_home
from pipeline.instance import instance_of
from pipeline.session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.session import LazySession, pull

DAILY, MERGE, PRUNE = "daily", "merge", "prune"
FAILED, FAILED_DAILY = "failed merge", "failed daily"
OUTPUT_BYTES: Final = 10_100
"""Captured output of a run that the daemon started, as measured on a home with `almanac ui`."""
_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
RawMetadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """What a run of a kind leaves. `rows` are those of the index by table, without ids.

    Tags name their event by its place in `event_logs`. `day` is the partition of a daily run.
    """

    run: dg.DagsterRun
    rows: Mapping[str, list[dict[str, Any]]]
    assets: list[dict[str, Any]]
    database: Path
    began: float
    seconds: float
    day: date | None

    @property
    def bytes(self) -> int:
        return self.database.stat().st_size

    @property
    def index_bytes(self) -> int:
        values = (value for rows in self.rows.values() for row in rows for value in row.values())
        return sum(len(str(value)) for value in values)


def record(folder: Path, *, now: datetime) -> tuple[dict[str, Template], RawMetadata]:
    """Execute a run of each kind in a home in `folder`, and return what they left.

    Also the metadata of the event that a poll with news reports.
    """
    settings = Settings(_env_file=None, home=folder / "home", state=folder / "state", wait_s=0)  # type: ignore[call-arg]
    home = locate_home(settings)
    found: dict[str, Template] = {}
    with open_service(settings, now=now - timedelta(days=2)) as service:
        assert service.sandbox is not None
        set_clock = service.sandbox.set_clock
        with instance_of(home) as instance:
            jobs = _Jobs(settings, service, instance)
            jobs.run("daily", service.today())
            set_clock(now - timedelta(days=1))
            found[DAILY] = jobs.template("daily", folder, service.today())
            with home.merge_lock():
                found[FAILED_DAILY] = jobs.template(
                    "daily", folder, service.today(), name=FAILED_DAILY
                )
            set_clock(now - timedelta(days=1) + timedelta(minutes=15))
            pulled = pull("events", service)
            polled = poll_metadata(
                pulled, home.landing, day=service.today(), quota_left=service.quota_left
            )
            found[MERGE] = jobs.template("merge", folder)
            set_clock(now - timedelta(days=1) + timedelta(minutes=30))
            pull("events", service)
            with home.merge_lock():
                found[FAILED] = jobs.template("merge", folder, name=FAILED)
            found[PRUNE] = jobs.template("prune", folder)
    return found, polled


class _Jobs:
    """The jobs of a home, executed in this process."""

    def __init__(
        self, settings: Settings, service: OpenedSession, instance: dg.DagsterInstance
    ) -> None:
        @contextmanager
        def ready() -> Iterator[OpenedSession]:
            yield service

        session = LazySession(ready, clock=service.clock)
        session.service()
        self._home = locate_home(settings)
        self._instance = instance
        self._definitions = build_definitions(settings, clock=service.clock, catalog=session)

    def run(self, job: str, day: date | None = None) -> str:
        return (
            self._definitions.resolve_job_def(job)
            .execute_in_process(
                run_id=str(uuid4()),
                instance=self._instance,
                partition_key=None if day is None else day.isoformat(),
                raise_on_error=False,
                run_config=_QUIET,
            )
            .run_id
        )

    def template(
        self, job: str, folder: Path, day: date | None = None, *, name: str = ""
    ) -> Template:
        """Return what a run of a job leaves, which fails if it is given a name of its own."""
        run_id = self.run(job, day)
        record = self._instance.get_run_record_by_id(run_id)
        assert record is not None and record.start_time is not None and record.end_time is not None
        is_failed = record.dagster_run.status is dg.DagsterRunStatus.FAILURE
        assert is_failed is bool(name), f"{job}: {record.dagster_run.status}"
        runs = self._home.dagster / "history" / "runs"
        database = folder / f"{name or job}.db"
        shutil.copyfile(runs / f"{run_id}.db", database)
        rows, assets = _rows(runs / "index.db", run_id)
        seconds = record.end_time - record.start_time
        return Template(record.dagster_run, rows, assets, database, record.start_time, seconds, day)


def _rows(index: Path, run_id: str) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return the rows of a run in the index by table, and the rows of its assets."""
    with closing(sqlite3.connect(index)) as store:
        store.row_factory = sqlite3.Row
        found = {
            "event_logs": _dicts(
                store, "SELECT * FROM event_logs WHERE run_id = ? ORDER BY id", run_id
            ),
            "asset_event_tags": _dicts(
                store,
                "SELECT * FROM asset_event_tags WHERE event_id IN "
                "(SELECT id FROM event_logs WHERE run_id = ?)",
                run_id,
            ),
            "asset_check_executions": _dicts(
                store, "SELECT * FROM asset_check_executions WHERE run_id = ?", run_id
            ),
        }
        assets = _dicts(store, "SELECT * FROM asset_keys WHERE last_run_id = ?", run_id)
    places = {row.pop("id"): place for place, row in enumerate(found["event_logs"])}
    for row in found["asset_event_tags"]:
        row["event_id"] = places[row["event_id"]]
    for row in found["asset_check_executions"]:
        for column in ("evaluation_event_storage_id", "materialization_event_storage_id"):
            row[column] = places.get(row[column])
    for table in ("asset_event_tags", "asset_check_executions"):
        for row in found[table]:
            del row["id"]
    for row in assets:
        del row["id"]
    return found, assets


def _dicts(store: sqlite3.Connection, statement: str, run_id: str) -> list[dict[str, Any]]:
    return [dict(row) for row in store.execute(statement, (run_id,))]
