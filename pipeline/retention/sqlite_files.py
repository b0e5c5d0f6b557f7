"""The files of an instance that is kept in files: a database for each run, captured output.

SQLite gives no space back by itself: the databases that runs share are vacuumed once much of them
is free. Belongs here: deleting files of runs, the leftovers of runs without a record, vacuum. Does
not: which runs go (runs), rows (events).
"""

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
from sqlalchemy.engine import Connection

from pipeline.retention.events import NO_RUN, in_chunks
from pipeline.retention.lengths import Pruned
from pipeline.runs.store import BESIDE
from warehouse.home import Home
from warehouse.sql import Statements

_SQL: Final = Statements(__package__)
_OUTPUT: Final = "storage"
_YOUNG: Final = timedelta(days=1)
"""A file without a record of its run may be of a run that just starts."""
_FREE_SHARE: Final = 0.25
_FREE_LEAST: Final = 1_000_000
_BUSY_S: Final = 10.0


class RunFiles:
    """The files of the runs of an instance; none of those of PostgreSQL.

    `home` is given if the instance is the home's own: then also files of runs without a record are
    leftovers. If `dry_run`, files are only counted.
    """

    def __init__(
        self, instance: dg.DagsterInstance, home: Home | None = None, *, dry_run: bool
    ) -> None:
        events = instance.event_log_storage
        self._events = events if isinstance(events, SqliteEventLogStorage) else None
        self._instance = instance
        self._home = home
        self._dry_run = dry_run

    @property
    def has_output(self) -> bool:
        """Whether captured output of runs is in local files."""
        return self._home is not None or isinstance(
            self._instance.compute_log_manager, LocalComputeLogManager
        )

    def delete(self, run_ids: Iterable[str]) -> Pruned:
        """Delete the databases of runs."""
        return self._delete_databases(self._database_of(run_id) for run_id in run_ids)

    def delete_output(self, run_ids: Iterable[str]) -> Pruned:
        """Delete the captured output of runs."""
        return self._delete_folders("output of runs", map(self._output_of, run_ids))

    def delete_leftovers(self, now: datetime) -> list[Pruned]:
        """Delete databases and output of runs without a record, as Dagster's own deletion leaves.

        Only in the home's own instance: elsewhere another program may put files there.
        """
        if self._home is None or self._events is None:
            return []
        databases = {run_id: self._database_of(run_id) for run_id in self._events.get_all_run_ids()}
        folders = {path.name: path for path in (self._home.dagster / _OUTPUT).glob("*-*-*-*-*")}
        found = {
            run_id: path
            for run_id, path in {**folders, **databases}.items()
            if _is_run_id(run_id) and _changed_at(path) < (now - _YOUNG).timestamp()
        }
        gone = found.keys() - self._recorded(sorted(found))
        left = self._delete_databases(databases[run_id] for run_id in gone & databases.keys())
        output = self._delete_folders(
            "output of deleted runs", (folders[run_id] for run_id in gone & folders.keys())
        )
        return [Pruned("databases of deleted runs", left.count, left.bytes), output]

    def vacuum(self) -> Pruned:
        """Give the free space of the shared databases back; one that is in use stays as it is."""
        count = size = 0
        for path in self._shared():
            freed = _free_bytes(path)
            if freed and not self._dry_run and not _vacuumed(path):
                continue
            count += bool(freed)
            size += freed
        return Pruned("free space in databases", count, size)

    def _shared(self) -> list[Path]:
        """Return the SQLite databases that runs share."""
        found: list[Path | None] = []
        for storage in (self._instance.run_storage, self._instance.schedule_storage):
            if isinstance(storage, SqlRunStorage | SqlScheduleStorage):
                with storage.connect() as connection:
                    found.append(_path_of(connection))
        if self._events is not None:
            with self._events.index_connection() as connection:
                found.append(_path_of(connection))
            found.append(self._database_of(NO_RUN))
        return [path for path in found if path is not None and path.is_file()]

    def _database_of(self, run_id: str) -> Path:
        return Path() if self._events is None else Path(self._events.path_for_shard(run_id))

    def _output_of(self, run_id: str) -> Path:
        manager = self._instance.compute_log_manager
        if self._home is not None:
            return self._home.dagster / _OUTPUT / run_id
        if isinstance(manager, LocalComputeLogManager):
            return Path(
                manager.get_captured_local_path([run_id, "compute_logs", "any"], "out")
            ).parent
        return Path()

    def _recorded(self, run_ids: list[str]) -> set[str]:
        return {
            run.run_id
            for chunk in in_chunks(run_ids)
            for run in self._instance.get_runs(filters=dg.RunsFilter(run_ids=chunk))
        }

    def _delete_databases(self, paths: Iterable[Path]) -> Pruned:
        count = size = 0
        for path in paths:
            if not path.is_file():
                continue
            count += 1
            size += path.stat().st_size
            # The database last: SQLite would apply the journal of a deleted one to a new one.
            for end in () if self._dry_run else (*BESIDE, ""):
                path.with_name(path.name + end).unlink(missing_ok=True)
        return Pruned("run databases", count, size)

    def _delete_folders(self, what: str, paths: Iterable[Path]) -> Pruned:
        count = size = 0
        for path in paths:
            if path == Path() or not path.is_dir():
                continue
            count += 1
            size += sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
            if not self._dry_run:
                shutil.rmtree(path)
                if self._home is None:
                    # The folder of the run, unless others have files in it.
                    with suppress(OSError):
                        path.parent.rmdir()
        return Pruned(what, count, size)


def _is_run_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _path_of(connection: Connection) -> Path | None:
    """Return the file of a SQLite database, None for another database."""
    if connection.dialect.name != "sqlite":
        return None
    return Path(connection.engine.url.database or "")


def _free_bytes(path: Path) -> int:
    """Return the free bytes of a database, 0 if they are few."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S)) as store:
        (page_size,) = store.execute(_SQL["show_page_size"]).fetchone()
        (pages,) = store.execute(_SQL["count_pages"]).fetchone()
        (free,) = store.execute(_SQL["count_free_pages"]).fetchone()
    is_much = free * page_size >= _FREE_LEAST and free >= pages * _FREE_SHARE
    return int(free * page_size) if is_much else 0


def _vacuumed(path: Path) -> bool:
    """Rewrite a database without its free pages; return False if it stayed in use."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as store:
        try:
            store.execute(_SQL["vacuum"])
            store.execute(_SQL["empty_journal"])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            return False
    return True
