"""The two SQLite files of the inbox: how they are made, opened and checked.

Belongs here: what both share. Does not: their tables (inbox_file, progress).
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

from warehouse.errors import InboxUnusable
from warehouse.files.storage import make_folders
from warehouse.home import Home
from warehouse.sql import Statements

SQL: Final = Statements(__package__)
FOLDER: Final = "inbox"
_BUSY_TIMEOUT_S: Final = 10.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RESTORE: Final = (
    "Restore it from a backup; or stop the receiver and move the folder away, and a new inbox "
    "begins."
)
_CHECK: Final = "Check the permissions of this user, and the disk; nothing has to be repaired."
_TRY_AGAIN: Final = "Another program uses it: try again."
_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "Free space; nothing has to be repaired.",
    sqlite3.SQLITE_BUSY: _TRY_AGAIN,
    sqlite3.SQLITE_LOCKED: _TRY_AGAIN,
    **dict.fromkeys(
        (
            *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
            *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_AUTH),
        ),
        _CHECK,
    ),
}
"""What to do about an error of SQLite: only a damaged file is to be replaced."""
_MICROSECOND: Final = timedelta(microseconds=1)


def inbox_folder(home: Home) -> Path:
    return home.state / FOLDER


def connected(path: Path, *, read_only: bool = False, wal: bool = False) -> sqlite3.Connection:
    """Open a connection without implicit transactions. A file opened for writing is made.

    `wal` says that the file has a log beside it while it is written.
    """
    mode = "mode=ro" if read_only else "mode=rw"
    if read_only and wal and _is_at_rest_for_us(path):
        mode += "&immutable=1"
    if not read_only:
        make_folders(path.parent)
        # Made first, with the mode of this process. Never opened by us if it exists: closing it
        # would drop the locks that SQLite holds on it elsewhere in this process.
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}",
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )


def _is_at_rest_for_us(path: Path) -> bool:
    """Whether a file has no log, and this user can't make one, as a member of the group can't.

    SQLite would make one even to read. Without a log, the file alone has everything.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    return not has_log and not os.access(path.parent, os.W_OK, effective_ids=True)


def prepare(
    connection: sqlite3.Connection,
    path: Path,
    *,
    application_id: int,
    version: int,
    create: Sequence[str],
) -> None:
    """Make the tables of a new file by the statements `create`, and check an existing one.

    Raises:
        InboxUnusable: it belongs to another program or has another version.
    """
    with transaction(connection):
        (found_id,) = connection.execute("PRAGMA application_id").fetchone()
        (found_version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (found_id, found_version, tables) == (0, 0, 0):
            for statement in create:
                connection.execute(SQL[statement])
        elif found_id != application_id:
            raise _unusable(path, "it belongs to another program")
        elif found_version != version:
            raise _unusable(path, f"it has version {found_version}, expected {version}")
    connection.execute("PRAGMA synchronous = FULL")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end, durably; on an error nothing is changed."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself ends the transaction on some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Raise InboxUnusable for what SQLite raises about a file."""
    try:
        yield
    except sqlite3.Error as error:
        # Only the lowest byte is the sort of an error. Errors of Python's module have none.
        sort = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        raise _unusable(path, str(error), _ADVICE.get(sort, _RESTORE)) from error


def _unusable(path: Path, why: str, advice: str = _RESTORE) -> InboxUnusable:
    return InboxUnusable(
        f"the file {path} of the inbox can't be used: {why}. It was not changed, and deliveries "
        f"that were landed are in landing. {advice}"
    )


def micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
