"""Errors of SQLite on Dagster's databases, sorted: damaged, in use, or inaccessible.

Belongs here: sorting errors by SQLite's codes, naming who uses a database, the error to raise. Does
not: reading the databases (store), opening them (instance). This module does not import Dagster.
"""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from warehouse.errors import RunRecordsBusy, RunRecordsInaccessible
from warehouse.files.locks import holder, is_held
from warehouse.home import Home

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
    sqlite3.SQLITE_NOLFS: "machine",
}


@dataclass(frozen=True, slots=True)
class StoreFault:
    """The kind of an error of a database, and SQLite's text for it."""

    kind: Kind
    text: str


def fault_of(error: BaseException) -> StoreFault:
    """Return the fault of an error of SQLite, of SQLAlchemy or of the system."""
    found = getattr(error, "orig", None) or error
    if isinstance(found, OSError):
        return StoreFault("machine", found.strerror or str(found))
    # The extended code has the primary one in its lowest byte.
    code = getattr(found, "sqlite_errorcode", 0) & 0xFF
    return StoreFault(_KINDS.get(code, "unknown"), str(found))


def busy(home: Home, path: Path) -> RunRecordsBusy:
    """Return the error for a database, or a folder of them, that another program uses."""
    return RunRecordsBusy(
        f"{path}: a database is in use by {_users(home)} and did not become free in time. It is "
        "not damaged, and finished work is kept. Run the command again later."
    )


def inaccessible(path: Path, what: str) -> RunRecordsInaccessible:
    """Return the error for a database, or a folder of them, that the system denies access to."""
    return RunRecordsInaccessible(
        f"{path}: a database can't be read or written: {what}. It may not be damaged, and "
        "finished work is kept. Check that the disk has free space and that this user may read "
        "and write there, then run the command again."
    )


def _users(home: Home) -> str:
    """Return the other commands that use the home as text."""
    locks = (home.state / "ui.lock", home.state / "run.lock")
    found = (holder(lock) for lock in locks if is_held(lock))
    users = [str(user) for user in found if user is not None and user.pid != os.getpid()]
    return " and ".join(users) or "another program"
