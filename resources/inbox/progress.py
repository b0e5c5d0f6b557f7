"""The progress of landing: up to which delivery, failed attempts, and settled dead letters.

    state/inbox/progress.sqlite   (SQLite, rollback journal: several processes may write it)
    state/inbox/landing.lock      held while deliveries are landed

A file of its own, since the receiver alone writes the deliveries. Belongs here: the file. Does not:
landing (landing.py).
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, Self

from resources.inbox.sqlite_files import (
    SQL,
    connected,
    inbox_folder,
    instant_of,
    micros,
    prepare,
    transaction,
    using,
)
from warehouse.errors import InboxUnusable
from warehouse.home import Home

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
            f"the files in {inbox_folder(home)} are not of one inbox: deliveries up to number "
            f"{progress.landed_to} are landed, and the last one received is {last_seq}. New ones "
            "would count as landed, so nothing is received or landed. Restore both files from one "
            "backup; or stop the receiver and move the folder away, and a new inbox begins."
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
