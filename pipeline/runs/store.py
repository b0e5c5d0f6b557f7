"""Dagster's SQLite databases, read without Dagster: their damage, and the runs in progress.

    dagster/history/runs.db          runs, and their status
    dagster/history/runs/index.db    events across runs; beside it a database for each run
    dagster/schedules/schedules.db   ticks of schedules and sensors

They hold the history of runs and no data of the warehouse. An instance with another storage has
none of them. Belongs here: reading them, setting damaged ones aside. Does not: creating them
(instance), ending runs (dead_runs), where they are (place).
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pipeline.runs.place import place_of
from pipeline.runs.store_faults import Kind, busy, fault_of, inaccessible
from warehouse.errors import RunRecordsDamaged, RunRecordsUnusable
from warehouse.home import Home
from warehouse.sql import Statements

SQL: Final = Statements(__package__)

RUNS: Final = "history/runs.db"
INDEX: Final = "history/runs/index.db"
SCHEDULES: Final = "schedules/schedules.db"
STORES: Final[dict[str, frozenset[str]]] = {
    RUNS: frozenset({"runs", "run_tags", "snapshots", "bulk_actions", "kvs", "daemon_heartbeats"}),
    INDEX: frozenset({"event_logs", "asset_keys", "asset_event_tags", "dynamic_partitions"}),
    SCHEDULES: frozenset({"jobs", "instigators", "job_ticks"}),
}
"""The databases, and the tables of a complete one."""
STATUSES_IN_PROGRESS: Final = ("NOT_STARTED", "STARTING", "STARTED", "CANCELING")
REPOSITORY_TAG: Final = ".dagster/repository"
"""The tag of a run with repository@location."""
PARTITION_TAG: Final = "dagster/partition"
BACKFILL_TAG: Final = "dagster/backfill"
"""Dagster's tags, of which its public API has no names."""
BESIDE: Final = ("-wal", "-shm")
_NOT_OURS: Final = "this user can't read and write it"
_AS_ITS_OWNER: Final = (
    "Run the command as the user who owns the home. If the file is this user's, `almanac doctor "
    "--fix` makes it readable and writable"
)
_BUSY_S: Final = 10.0
_WAY_OUT: Final = (
    "It holds the history of runs and no data of the warehouse. `almanac doctor --fix` sets it "
    "aside and makes a new one"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """A database that can't be used, and the reason.

    Only the kind "damaged" means damage; with "busy" another program uses it, with "machine" the
    system denies access.
    """

    path: Path
    what: str
    kind: Kind = "damaged"

    @property
    def is_unreadable(self) -> bool:
        """Whether this user may not read or write it; it may be sound."""
        return self.what == _NOT_OURS

    def __str__(self) -> str:
        return f"{self.path}: {self.what}. {_AS_ITS_OWNER if self.is_unreadable else _WAY_OUT}"

    def error(self, home: Home) -> RunRecordsUnusable:
        """Return the error to raise."""
        if self.kind == "busy":
            return busy(home, self.path)
        if self.kind == "machine" and not self.is_unreadable:
            return inaccessible(self.path, self.what)
        return RunRecordsDamaged(str(self))


@dataclass(frozen=True, slots=True)
class RunInProgress:
    """A run that has started and not ended, by Dagster's records. `changed_at` is aware UTC."""

    run_id: str
    job: str
    status: str
    changed_at: datetime
    location: str = ""
    """The code location that executes it; empty for a run in a process of its own."""


def damages(home: Home, *, thorough: bool = False) -> list[Damage]:
    """Return the damage of the databases; a missing one is created at the next start.

    If `thorough`, every page is read, also of the databases of runs; else only what a start needs.

    Raises:
        RunRecordsUnusable: the `dagster.yaml` of the instance can't be read.
    """
    folder = place_of(home).databases
    if folder is None:
        return []
    paths = [folder / name for name in STORES]
    if thorough:
        paths += [
            path for path in sorted((folder / INDEX).parent.glob("*.db")) if path not in paths
        ]
    found = (_wrong(path, _tables_of(folder, path), thorough) for path in paths)
    return [damage for damage in found if damage is not None]


def find_unmade(home: Home) -> list[Path]:
    """Return the databases of the home's own instance that are missing or half made.

    Dagster stores the schema revision last. Damaged ones are left to `check`.
    """
    unmade = []
    for path in (home.dagster / name for name in STORES):
        try:
            if not path.exists() or (path.is_file() and not _is_made(path)):
                unmade.append(path)
        except (sqlite3.Error, OSError):
            continue
    return unmade


def _is_made(path: Path) -> bool:
    with opened(path) as store:
        named = {name for (name,) in _rows(store, "list_tables")}
        return "alembic_version" in named and bool(_rows(store, "list_revisions"))


def check(home: Home) -> None:
    """Check the databases as a start needs them.

    Raises:
        RunRecordsUnusable: a database can't be used.
    """
    for damage in damages(home):
        raise damage.error(home)


def set_aside(damage: Damage, now: datetime) -> Path:
    """Rename a damaged database and its journals; return the new path of the database.

    Raises:
        OSError: the folder can't be written to.
    """
    aside = damage.path.with_name(f"{damage.path.name}.damaged-{now:%Y%m%dT%H%M%S}")
    for end in BESIDE:
        with suppress(FileNotFoundError):
            damage.path.with_name(damage.path.name + end).rename(f"{aside}{end}")
    return damage.path.rename(aside)


def runs_in_progress(home: Home) -> list[RunInProgress]:
    """Return the runs that have started and not ended, by the SQLite databases.

    None if there are no records yet, or the instance has another storage.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    folder = place_of(home).databases
    if folder is None or not (path := folder / RUNS).exists():
        return []
    try:
        with opened(path) as store:
            given = {"repository": REPOSITORY_TAG}
            rows = store.execute(SQL["list_runs_in_progress"], given).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise _damage_of(path, error).error(home) from error
    return [
        RunInProgress(run_id, job, status, instant(at), (label or "").rpartition("@")[2])
        for run_id, job, status, at, label in rows
    ]


def daemon_heartbeats(home: Home) -> dict[str, datetime]:
    """Return when each part of Dagster's daemon last reported, by its type; SQLite only.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    folder = place_of(home).databases
    if folder is None or not (path := folder / RUNS).exists():
        return {}
    try:
        with opened(path) as store:
            return {kind: instant(at) for kind, at in _rows(store, "list_heartbeats")}
    except (sqlite3.Error, OSError) as error:
        raise _damage_of(path, error).error(home) from error


def instant(text: str) -> datetime:
    """Return an instant of Dagster's records, which are UTC without a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _tables_of(folder: Path, path: Path) -> frozenset[str]:
    return STORES.get(path.relative_to(folder).as_posix(), frozenset({"event_logs"}))


def _wrong(path: Path, tables: frozenset[str], thorough: bool) -> Damage | None:
    """Return the damage of a database, None if it is sound or missing."""
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_file():
        return Damage(path, "it is not a file")
    if not os.access(path, os.R_OK | os.W_OK):
        return Damage(path, _NOT_OURS, "machine")
    if not path.stat().st_size:
        return Damage(path, "it is empty")
    try:
        with opened(path) as store:
            what = _wrong_within(store, tables, thorough)
    except (sqlite3.Error, OSError) as error:
        return _damage_of(path, error)
    return Damage(path, what) if what else None


def _damage_of(path: Path, error: Exception) -> Damage:
    """Return the damage that an error of a reading statement means."""
    fault = fault_of(error)
    # An error without a known code means that the schema is not the expected one.
    return Damage(path, fault.text, "damaged" if fault.kind == "unknown" else fault.kind)


def _wrong_within(store: sqlite3.Connection, tables: frozenset[str], thorough: bool) -> str:
    if thorough:
        result = _rows(store, "check_integrity")[0][0]
        if result != "ok":
            return str(result).splitlines()[-1]
    missing = (tables | {"alembic_version"}) - {name for (name,) in _rows(store, "list_tables")}
    if missing:
        return f"it is incomplete: it has no table {min(missing)}"
    revisions = _rows(store, "list_revisions")
    if len(revisions) != 1:
        return f"it has {len(revisions)} schema revisions, expected one"
    return ""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing database, and close it at the end."""
    address = f"file:{quote(str(path.resolve()))}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as store:
        yield store


def _rows(store: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
    return store.execute(SQL[name]).fetchall()
