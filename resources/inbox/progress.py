"""The SQLite files of the inbox, and the progress of landing.

    state/inbox/progress.sqlite   (SQLite, rollback journal: several processes may write it)
    state/inbox/landing.lock      held while deliveries are landed

The progress says up to which delivery is landed, which attempts failed, and which dead letters are
settled. It has a file of its own, since the receiver alone writes the deliveries.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self
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
"""The advice for an error of SQLite: only a damaged file is to be replaced."""
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


FILE_NAME: Final = "progress.sqlite"
PROGRESS_ID: Final = 1097617258
VERSION: Final = 1
_CREATE: Final = (
    *("create_progress", "create_settled", "create_settled_to_replay", "insert_progress"),
    *("set_progress_id", "set_progress_version"),
)

Outcome = Literal["replayed", "dismissed"]


@dataclass(frozen=True, slots=True)
class LandingProgress:
    """How far landing is. `range_to` is not None while deliveries up to it are being landed.

    `failures` counts the failed attempts since the last success; `failure` is the last reason.
    `to_replay` counts the dead letters that wait to be landed.
    """

    landed_to: int = 0
    range_to: int | None = None
    failures: int = 0
    failed_at: datetime | None = None
    failure: str | None = None
    to_replay: int = 0


@dataclass(frozen=True, slots=True)
class SettledLetter:
    """The decision of a person about a dead letter; `landed_at` is set once it was replayed."""

    seq: int
    outcome: Outcome
    landed_at: datetime | None


def progress_path(home: Home) -> Path:
    return inbox_folder(home) / FILE_NAME


def read_progress(home: Home) -> LandingProgress:
    """Return the progress of a home; at the start if nothing was landed yet. Reads one row.

    Raises:
        InboxUnusable: the file can't be read.
    """
    for row in _read(home, "get_progress"):
        return _progress(row)
    return LandingProgress()


def settled_letters(home: Home) -> dict[int, SettledLetter]:
    """Return the dead letters that a person settled, by seq. Raises as `read_progress`."""
    return {
        seq: SettledLetter(seq, outcome, None if at is None else instant_of(at))
        for seq, outcome, at in _read(home, "list_settled")
    }


def check_one_inbox(home: Home, progress: LandingProgress, last_seq: int) -> None:
    """Refuse an inbox that lost deliveries: it would number new ones like some that are landed.

    Raises:
        InboxUnusable: more is landed than was received.
    """
    if progress.landed_to > last_seq:
        raise InboxUnusable(
            f"the files in {inbox_folder(home)} do not belong together: deliveries up to "
            f"number {progress.landed_to} are landed, but the last delivery received has number "
            f"{last_seq}. New deliveries would count as already landed, so nothing is received or "
            "landed. Restore both files from the same backup. Or stop the receiver and move the "
            "folder away; then Almanac starts a new inbox."
        )


class ProgressFile:
    """The file opened for writing; each call is durable at its return."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, home: Home) -> Iterator[Self]:
        """Open the file of a home; it is made if it is absent.

        Raises:
            InboxUnusable: the file can't be used.
        """
        path = progress_path(home)
        with using(path), closing(connected(path)) as connection:
            prepare(connection, path, application_id=PROGRESS_ID, version=VERSION, create=_CREATE)
            yield cls(connection)

    def progress(self) -> LandingProgress:
        (row,) = self._run("get_progress")
        return _progress(row)

    def set_range(self, range_to: int) -> None:
        """Record that the deliveries up to `range_to` are about to be landed."""
        self._run("set_range", range_to=range_to)

    def set_landed(self, landed_to: int) -> None:
        """Record that the deliveries up to `landed_to` are landed."""
        self._run("set_landed", landed_to=landed_to)

    def set_failure(self, why: str, at: datetime) -> None:
        self._run("set_failure", failure=why, failed_at=micros(at))

    def settle(self, seqs: Iterable[int], outcome: Outcome) -> None:
        """Record what a person decided about dead letters: all of them or none."""
        with transaction(self._connection):
            for seq in seqs:
                self._run("settle", seq=seq, outcome=outcome)

    def to_replay(self) -> list[int]:
        """Return the dead letters that wait to be landed, in order of receipt."""
        return [seq for (seq,) in self._run("list_to_replay")]

    def mark_replayed(self, seqs: list[int], at: datetime) -> None:
        with transaction(self._connection):
            for seq in seqs:
                self._run("mark_replayed", seq=seq, landed_at=micros(at))

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(SQL[statement], values).fetchall()


def _read(home: Home, statement: str) -> list[tuple[Any, ...]]:
    path = progress_path(home)
    if not path.exists():
        return []
    with using(path), closing(connected(path, read_only=True)) as connection:
        # A file whose maker was killed has no tables yet.
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return connection.execute(SQL[statement]).fetchall() if version else []


def _progress(row: tuple[Any, ...]) -> LandingProgress:
    landed_to, range_to, failures, failed_at, failure, to_replay = row
    at = None if failed_at is None else instant_of(failed_at)
    return LandingProgress(landed_to, range_to, failures, at, failure, to_replay)
