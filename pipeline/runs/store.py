"""Dagster's SQLite databases, read without Dagster: their damage, and the daemon's heartbeats.

    dagster/history/runs.db          runs, and their status
    dagster/history/runs/index.db    events across runs; beside it a database for each run
    dagster/schedules/schedules.db   ticks of schedules and sensors

They hold the history of runs and no data of the warehouse. An instance with another storage has
none of them. Errors are sorted by SQLite's codes: a database is damaged, in use, or inaccessible.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from pipeline.runs.place import place_of
from warehouse.errors import (
    RunRecordsBusy,
    RunRecordsDamaged,
    RunRecordsInaccessible,
    RunRecordsUnusable,
)
from warehouse.files.locks import holder, is_held
from warehouse.home import Home
from warehouse.sql import Statements

RUNS: Final = "history/runs.db"
INDEX: Final = "history/runs/index.db"
SCHEDULES: Final = "schedules/schedules.db"
STORES: Final[dict[str, frozenset[str]]] = {
    RUNS: frozenset({"runs", "run_tags", "snapshots", "bulk_actions", "kvs", "daemon_heartbeats"}),
    INDEX: frozenset({"event_logs", "asset_keys", "asset_event_tags", "dynamic_partitions"}),
    SCHEDULES: frozenset({"jobs", "instigators", "job_ticks"}),
}
"""The databases, and the tables of a complete one."""
BESIDE: Final = ("-wal", "-shm")
_SQL: Final = Statements(__package__)
_BUSY_S: Final = 10.0
_NOT_OURS: Final = "this user can't read and write it"

Kind = Literal["damaged", "busy", "machine", "unknown"]
_KINDS: Final[dict[int, Kind]] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FORMAT: "damaged",
    sqlite3.SQLITE_FULL: "machine",
    sqlite3.SQLITE_IOERR: "machine",
    sqlite3.SQLITE_CANTOPEN: "machine",
    sqlite3.SQLITE_READONLY: "machine",
    sqlite3.SQLITE_PERM: "machine",
    sqlite3.SQLITE_AUTH: "machine",
    sqlite3.SQLITE_NOMEM: "machine",
}


@dataclass(frozen=True, slots=True)
class Damage:
    """A database, or a folder of them, that can't be used, and the reason.

    Only the kind "damaged" means damage; with "busy" another program uses it, with "machine" the
    system denies access.
    """

    path: Path
    what: str
    kind: Kind = "damaged"

    @classmethod
    def of(cls, path: Path, error: BaseException) -> "Damage":
        """Return the damage that an error of SQLite, SQLAlchemy or the system means."""
        found = getattr(error, "orig", None) or error
        if isinstance(found, OSError):
            return cls(path, found.strerror or str(found), "machine")
        # The extended code has the primary one in its lowest byte.
        code = getattr(found, "sqlite_errorcode", 0) & 0xFF
        return cls(path, str(found), _KINDS.get(code, "unknown"))

    @property
    def is_unreadable(self) -> bool:
        """Whether this user may not read or write it; it may be sound."""
        return self.what == _NOT_OURS

    def error(self, home: Home) -> RunRecordsUnusable:
        """Return the error to raise, which names the file and the next step."""
        if self.is_unreadable:
            return RunRecordsDamaged(
                f"{self.path}: {self.what}. Run the command as the user who owns the home. If the "
                "file is this user's, `almanac doctor --fix` makes it readable and writable"
            )
        if self.kind == "busy":
            return RunRecordsBusy(
                f"{self.path}: a database is in use by {_users(home)} and did not become free in "
                "time. It is not damaged, and finished work is kept. Run the command again later."
            )
        if self.kind == "machine":
            return RunRecordsInaccessible(
                f"{self.path}: a database can't be read or written: {self.what}. It may not be "
                "damaged, and finished work is kept. Check that the disk has free space and that "
                "this user may read and write there, then run the command again."
            )
        return RunRecordsDamaged(
            f"{self.path}: {self.what}. It holds the history of runs and no data of the warehouse. "
            "`almanac doctor --fix` sets it aside and makes a new one"
        )


def damages(home: Home, *, thorough: bool = False) -> list[Damage]:
    """Return the damage of the databases; a missing one is created at the next start.

    If `thorough`, every page is read, also of the databases of runs; else only what a start needs.

    Raises:
        RunRecordsUnusable: the `dagster.yaml` of the instance can't be read.
    """
    folder = place_of(home).databases
    if folder is None:
        return []
    tables = {folder / name: tables for name, tables in STORES.items()}
    if thorough:
        runs = sorted((folder / INDEX).parent.glob("*.db"))
        tables = {path: frozenset({"event_logs"}) for path in runs} | tables
    found = (_find_damage(path, wanted, thorough) for path, wanted in tables.items())
    return [damage for damage in found if damage is not None]


def check(home: Home) -> None:
    """Check the databases as a start needs them.

    Raises:
        RunRecordsUnusable: a database can't be used.
    """
    for damage in damages(home):
        raise damage.error(home)


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
            rows = _rows(store, "list_heartbeats")
    except (sqlite3.Error, OSError) as error:
        raise Damage.of(path, error).error(home) from error
    return {kind: datetime.fromisoformat(at).replace(tzinfo=UTC) for kind, at in rows}


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing database, and close it at the end."""
    address = f"file:{quote(str(path.resolve()))}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as store:
        yield store


def _find_damage(path: Path, tables: frozenset[str], thorough: bool) -> Damage | None:
    """Return the damage of a database, None if it is sound or missing."""
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_file():
        return Damage(path, "it is not a file")
    if not os.access(path, os.R_OK | os.W_OK):
        return Damage(path, _NOT_OURS, "machine")
    try:
        with opened(path) as store:
            result = _rows(store, "check_integrity")[0][0] if thorough else "ok"
            if result != "ok":
                return Damage(path, str(result).splitlines()[-1])
            named = {name for (name,) in _rows(store, "list_tables")}
    except (sqlite3.Error, OSError) as error:
        damage = Damage.of(path, error)
        # A read without a known fault means that the schema is not the expected one.
        return damage if damage.kind != "unknown" else Damage(path, damage.what)
    missing = (tables | {"alembic_version"}) - named
    return Damage(path, f"it is incomplete: it has no table {min(missing)}") if missing else None


def _is_made(path: Path) -> bool:
    with opened(path) as store:
        named = {name for (name,) in _rows(store, "list_tables")}
        return "alembic_version" in named and bool(_rows(store, "list_revisions"))


def _rows(store: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
    return store.execute(_SQL[name]).fetchall()


def _users(home: Home) -> str:
    """Return the other commands that use the home as text."""
    locks = (home.state / "ui.lock", home.state / "run.lock")
    found = (holder(lock) for lock in locks if is_held(lock))
    users = [str(user) for user in found if user is not None and user.pid != os.getpid()]
    return " and ".join(users) or "another program"
