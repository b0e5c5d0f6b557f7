"""Stores a run of a kind, as its template left it, at another time; ticks; what polls report.

Rows of the index, of the records of runs and of ticks are inserted with the texts of the template,
with its id, times and day replaced; the run's own database is a copy with these replaced. So every
day is really stored, at the size of a real run. Belongs here: storing. Does not: what happens when.
"""

import json
import shutil
import sqlite3
from collections.abc import Container, Iterable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import dagster as dg
import sqlalchemy as db
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    AssetKeyTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.storage.schedules.schema import JobTickTable
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat

from bench.year.recorded import OUTPUT_BYTES, Template
from pipeline.runs.place import LOCATION
from warehouse.home import Home

_DAEMONS: Final = ("BACKFILL", "QUEUED_RUN_COORDINATOR", "SCHEDULER", "SENSOR")
_REASON: Final = "Nothing is due. The next pull is due at 2026-03-01 12:15:00 UTC."


class Replay:
    """The instance of a home, into which runs are stored at any time."""

    def __init__(self, instance: dg.DagsterInstance, home: Home) -> None:
        events, runs = instance.event_log_storage, instance.run_storage
        schedules = instance.schedule_storage
        assert isinstance(events, SqliteEventLogStorage)
        assert isinstance(runs, SqlRunStorage)
        assert isinstance(schedules, SqlScheduleStorage)
        self._instance, self._home = instance, home
        self._events, self._runs, self._schedules = events, runs, schedules
        self._ticks: dict[str, dict[str, Any]] = {}
        self.runs = 0
        """How many runs were stored."""

    def adopt(self, other: dg.DagsterInstance, templates: Iterable[Template]) -> None:
        """Take over what runs of templates refer to from the instance that executed them."""
        for run in (template.run for template in templates):
            job, plan = run.job_snapshot_id, run.execution_plan_snapshot_id
            assert job is not None and plan is not None
            if not self._instance.has_job_snapshot(job):
                self._runs.add_job_snapshot(other.get_job_snapshot(job))
            if not self._runs.has_execution_plan_snapshot(plan):
                self._runs.add_execution_plan_snapshot(other.get_execution_plan_snapshot(plan))

    def start(self, template: Template, at: datetime) -> str:
        """Store a run that is in progress since an instant, and has no output yet."""
        run_id = str(uuid4())
        run = dg.DagsterRun(
            job_name=template.run.job_name,
            run_id=run_id,
            status=dg.DagsterRunStatus.STARTED,
            tags=template.run.tags,
            remote_job_origin=template.run.remote_job_origin,
        )
        self._runs.add_historical_run(run, at.replace(tzinfo=None))
        self._set_run(run_id, start_time=at.timestamp(), update_timestamp=at.replace(tzinfo=None))
        self.runs += 1
        return run_id

    def end(self, run_id: str, status: dg.DagsterRunStatus, at: datetime) -> None:
        """Store that a run ended at an instant."""
        run = self._instance.get_run_by_id(run_id)
        assert run is not None
        self._set_run(
            run_id,
            status=status.value,
            run_body=dg.serialize_value(run.with_status(status)),
            end_time=at.timestamp(),
            update_timestamp=at.replace(tzinfo=None),
        )

    def beat(self, at: datetime) -> None:
        """Store that each part of the daemon reported at an instant."""
        for part in _DAEMONS:
            self._instance.add_daemon_heartbeat(DaemonHeartbeat(at.timestamp(), part, None, None))

    def run(self, template: Template, at: datetime, day: date | None = None) -> str:
        """Store a run of a template that began at an instant."""
        run_id = str(uuid4())
        texts = {template.run.run_id: run_id}
        if template.day is not None and day is not None:
            texts[template.day.isoformat()] = day.isoformat()
        shift = at.timestamp() - template.began
        moved = _Moved(texts, shift)
        self._add_run(template, moved, run_id, at)
        with self._events.index_transaction() as connection:
            ids = []
            for row in template.rows["event_logs"]:
                result = connection.execute(SqlEventLogStorageTable.insert(), moved.row(row))
                ids.append(int((result.inserted_primary_key or [0])[0]))
            for table, name in (
                (AssetEventTagsTable, "asset_event_tags"),
                (AssetCheckExecutionsTable, "asset_check_executions"),
            ):
                rows = [moved.row(_with_ids(row, ids)) for row in template.rows[name]]
                if rows:
                    connection.execute(table.insert(), rows)
            for row in template.assets:
                new = moved.row(row)
                new.pop("cached_status_data")
                known = AssetKeyTable.update().where(AssetKeyTable.c.asset_key == new["asset_key"])
                if not connection.execute(known.values(**new)).rowcount:
                    connection.execute(AssetKeyTable.insert(), new)
        self._add_files(template, moved, run_id, at)
        self.runs += 1
        return run_id

    def poll(self, asset: dg.AssetKey, metadata: Mapping[str, Any], at: datetime) -> None:
        """Store what a poll that brought news reports: an event without a run."""
        self._instance.report_runless_asset_event(
            dg.AssetMaterialization(asset, partition=at.date().isoformat(), metadata=dict(metadata))
        )
        # It is stored at the machine's time, as the newest of the index and of its own database.
        for shard in (self._events.index_connection(), self._events.run_connection("")):
            newest = db.select(db.func.max(SqlEventLogStorageTable.c.id)).scalar_subquery()
            with shard as connection:
                connection.execute(
                    SqlEventLogStorageTable.update()
                    .where(SqlEventLogStorageTable.c.id == newest)
                    .values(timestamp=at.replace(tzinfo=None))
                )

    def ticks(
        self,
        begins: datetime,
        ends: datetime,
        every_s: Mapping[str, int],
        failing: Container[str] = (),
    ) -> None:
        """Store the ticks of sensors in a span of time: skipped, but those of `failing` failed."""
        rows = []
        for name, seconds in every_s.items():
            template = self._ticks.get(name) or self._tick(name)
            body = json.loads(template["tick_body"])
            status = TickStatus.FAILURE if name in failing else TickStatus.SKIPPED
            body["status"] = {"__enum__": f"TickStatus.{status.name}"}
            first = -(-int(begins.timestamp()) // seconds) * seconds
            for at_s in range(first, int(ends.timestamp()), seconds):
                body["timestamp"] = body["end_timestamp"] = float(at_s)
                rows.append(
                    {
                        **template,
                        "status": status.value,
                        "timestamp": datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None),
                        "tick_body": json.dumps(body),
                    }
                )
        if rows:
            with self._schedules.connect() as connection:
                connection.execute(JobTickTable.insert(), rows)

    def as_daemon(self, now: datetime, days: Mapping[str, int]) -> None:
        """Delete old ticks as Dagster's daemon does by `dagster.yaml`: skipped, then others."""
        for state in self._instance.all_instigator_state():
            for status, kept in days.items():
                before = (now - timedelta(days=kept)).timestamp()
                statuses = [TickStatus(status.upper())]
                self._instance.purge_ticks(
                    state.instigator_origin_id, state.selector_id, before, statuses
                )

    def _tick(self, name: str) -> dict[str, Any]:
        """Make the record of a sensor and a tick of it; return the row of the tick."""
        target = LoadableTargetOrigin(module_name="pipeline.definitions")
        location = ManagedGrpcPythonEnvCodeLocationOrigin(target, LOCATION)
        origin = RemoteInstigatorOrigin(
            repository_origin=RemoteRepositoryOrigin(location, "__repository__"),
            instigator_name=name,
        )
        state = InstigatorState(
            origin,
            InstigatorType.SENSOR,
            InstigatorStatus.DECLARED_IN_CODE,
            SensorInstigatorData(min_interval=30),
        )
        self._instance.add_instigator_state(state)
        tick = self._instance.create_tick(
            TickData(
                state.instigator_origin_id,
                name,
                InstigatorType.SENSOR,
                TickStatus.SKIPPED,
                0.0,
                skip_reason=_REASON,
                selector_id=state.selector_id,
                end_timestamp=0.0,
                cursor='{"at":"2026-03-01T12:00:00Z"}',
            )
        )
        with self._schedules.connect() as connection:
            found = connection.execute(
                JobTickTable.select().where(JobTickTable.c.id == tick.tick_id)
            )
            row = dict(found.mappings().all()[0])
        del row["id"]
        self._ticks[name] = row
        return row

    def _add_run(self, template: Template, moved: "_Moved", run_id: str, at: datetime) -> None:
        run = dg.deserialize_value(moved.text(dg.serialize_value(template.run)), dg.DagsterRun)
        self._runs.add_historical_run(run, at.replace(tzinfo=None))
        ended = at + timedelta(seconds=template.seconds)
        self._set_run(
            run_id,
            start_time=at.timestamp(),
            end_time=ended.timestamp(),
            update_timestamp=ended.replace(tzinfo=None),
        )

    def _set_run(self, run_id: str, **values: Any) -> None:
        with self._runs.connect() as connection:
            connection.execute(
                RunsTable.update().where(RunsTable.c.run_id == run_id).values(**values)
            )

    def _add_files(self, template: Template, moved: "_Moved", run_id: str, at: datetime) -> None:
        path = Path(self._events.path_for_shard(run_id))
        shutil.copyfile(template.database, path)
        with closing(sqlite3.connect(path)) as store:
            rows = store.execute("SELECT id, event, timestamp FROM event_logs").fetchall()
            store.executemany(
                "UPDATE event_logs SET run_id = ?, event = ?, timestamp = ? WHERE id = ?",
                [
                    (run_id, moved.event(event), moved.at_text(when), number)
                    for number, event, when in rows
                ],
            )
            store.commit()
        output = self._home.dagster / "storage" / run_id / "compute_logs" / "step.err"
        output.parent.mkdir(parents=True)
        output.write_bytes(b"." * OUTPUT_BYTES)


class _Moved:
    """Replaces run id, day and times in the rows of a template."""

    def __init__(self, texts: Mapping[str, str], shift: float) -> None:
        self._texts = texts
        self._shift = shift

    def text(self, value: str) -> str:
        for old, new in self._texts.items():
            value = value.replace(old, new)
        return value

    def event(self, value: str) -> str:
        found = json.loads(self.text(value))
        if "timestamp" in found:
            found["timestamp"] += self._shift
        entry = found.get("event_log_entry")
        if entry is not None:
            entry["timestamp"] += self._shift
        return json.dumps(found)

    def at(self, value: str) -> datetime:
        return datetime.fromisoformat(value) + timedelta(seconds=self._shift)

    def at_text(self, value: str) -> str:
        return f"{self.at(value):%Y-%m-%d %H:%M:%S.%f}"

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in row.items():
            if value is None or not isinstance(value, str):
                found[name] = value
            elif name in ("event", "evaluation_event", "last_materialization"):
                found[name] = self.event(value)
            elif name.endswith("timestamp"):
                found[name] = self.at(value)
            else:
                found[name] = self.text(value)
        return {name: value for name, value in found.items() if name != "id"}


def _with_ids(row: Mapping[str, Any], ids: list[int]) -> dict[str, Any]:
    """Return a row whose places of events are their ids."""
    found = dict(row)
    for name in ("event_id", "evaluation_event_storage_id", "materialization_event_storage_id"):
        if found.get(name) is not None:
            found[name] = ids[found[name]]
    return found


def of_the_past(days: int, now: datetime) -> list[datetime]:
    """Return the midnights of the last days up to today."""
    today = datetime.combine(now.date(), datetime.min.time(), UTC)
    return [today - timedelta(days=days - 1 - number) for number in range(days)]
