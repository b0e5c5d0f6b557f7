"""The file of the inbox: accepted deliveries in order of receipt, written by one process.

    state/inbox/deliveries.sqlite   the deliveries (SQLite, WAL)
    state/inbox/receiver.lock       held by the receiver, the only writer

SQLite before 3.51.3 can damage a WAL file if two connections write or checkpoint at the same time.
So one connection of one process writes, under an OS lock; all others open the file read-only, which
never checkpoints. The progress after receipt is recorded elsewhere (progress.py).
Belongs here: the file. Does not: HTTP and signatures (pipeline/receiver), landing.
"""

import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from catalog.contract.constants import WEBHOOK_MEANINGS
from resources.inbox.progress import (
    SQL,
    check_one_inbox,
    connected,
    inbox_folder,
    instant_of,
    micros,
    prepare,
    read_progress,
    transaction,
    using,
)
from warehouse.errors import InboxUnusable
from warehouse.files.locks import hold_lock
from warehouse.home import Home
from warehouse.normalise.json_feeds import delivery_head

FILE_NAME: Final = "deliveries.sqlite"
LOCK_NAME: Final = "receiver.lock"
INBOX_ID: Final = 1097617257
VERSION: Final = 1
ID_REUSED: Final = "its id was received before, with another body"
_CREATE: Final = (
    *("create_deliveries", "create_deliveries_by_id", "create_deliveries_in_trouble"),
    *("create_deliveries_with_body", "create_deliveries_by_event", "create_refusals"),
    *("set_inbox_id", "set_inbox_version"),
)
_LOCK_WAIT_S: Final = 1.0
_CLEARED_AT_ONCE: Final = 100
"""Few, since a commit waits as long as this takes."""
LOG_BYTES_MAX: Final = 16_777_216
"""The log of the file is cut to this once its content is in the file."""

log = logging.getLogger(__name__)

StoreResult = Literal["stored", "duplicate", "set aside"]
"""New; received before with the same body; new, and a dead letter that is not landed
automatically."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An accepted body, and its id in the header, for forms that sign one there."""

    body: bytes = field(repr=False)
    header_id: str | None = None


@dataclass(frozen=True, slots=True)
class InboxDelivery:
    """A delivery of the inbox. `body` is None once it was cleared, and in lists."""

    seq: int
    delivery_id: str
    received_at: datetime
    kind: str | None
    event_id: str | None
    size: int
    """Bytes of the body."""
    body_sha256: bytes = field(repr=False)
    trouble: str | None
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RefusalCount:
    """The requests that were refused for a reason, and when the last one was."""

    reason: str
    requests: int
    last_at: datetime


def inbox_path(home: Home) -> Path:
    return inbox_folder(home) / FILE_NAME


def lock_path(home: Home) -> Path:
    return inbox_folder(home) / LOCK_NAME


class HeldFile:
    """A file that SQLite has open, held open beside it, to see whether it is still the one at its
    path. Closed after the connection: closing it earlier would drop SQLite's locks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = os.open(path, os.O_RDONLY)
        self.note()

    def note(self) -> None:
        """Take the present content as known."""
        self._noted = self._content()

    def is_as_noted(self) -> bool:
        """Whether nobody wrote to the file since the last note."""
        return self._content() == self._noted

    def is_in_place(self) -> bool:
        """Whether the path has this file. Raises OSError: it has none."""
        return os.path.samestat(self._path.stat(), os.fstat(self._number))

    def is_cut(self) -> bool:
        return self._content()[0] < self._noted[0]

    def close(self) -> None:
        os.close(self._number)

    def _content(self) -> tuple[int, int]:
        found = os.fstat(self._number)
        return found.st_size, found.st_mtime_ns


class InboxWriter:
    """The only writer of an inbox, for calls of one thread at a time.

    `clock` returns the service's time. Use `open`, which holds the lock. All methods but
    `is_in_place` raise InboxUnusable if the files at their paths are no longer those that are open:
    deleted, replaced or cut ones, in which everything that is stored would be lost.
    """

    def __init__(self, home: Home, clock: Callable[[], datetime]) -> None:
        self._home = home
        self._path = inbox_path(home)
        self._clock = clock
        self._lock_file = lock_path(home).stat()
        self._files: tuple[HeldFile, ...] = ()
        self._open()

    @classmethod
    @contextmanager
    def open(cls, home: Home, clock: Callable[[], datetime]) -> Iterator[Self]:
        """Open the inbox of a home as its writer; it is made if it is absent.

        Raises:
            LockHeld: another receiver runs on this home.
            InboxUnusable: the file is not an inbox, of another version, or can't be opened.
        """
        with hold_lock(lock_path(home), "to receive", wait_s=_LOCK_WAIT_S):
            writer = cls(home, clock)
            try:
                yield writer
            finally:
                writer._close()

    def store(self, arrivals: Sequence[Arrival]) -> list[StoreResult]:
        """Store a group of deliveries in one transaction; at the return they are on the disk.

        Raises:
            sqlite3.Error: none of them is stored, by a full disk for example.
        """
        received_at = micros(self._clock())
        with self._in_place(), transaction(self._connection):
            return [self._store(arrival, received_at) for arrival in arrivals]

    def count_refusals(self, requests: Mapping[str, int]) -> None:
        """Add refused requests to the counts, by reason."""
        now = micros(self._clock())
        with self._in_place(), transaction(self._connection):
            for reason, count in requests.items():
                self._run("count_refusals", reason=reason, requests=count, last_at=now)

    def clear_bodies(self, *, before: datetime, landed_to: int) -> int:
        """Clear some bodies of landed deliveries; return how many. Call again until it is 0."""
        values = {"before": micros(before), "landed_to": landed_to, "limit": _CLEARED_AT_ONCE}
        with self._in_place():
            return self._connection.execute(SQL["clear_bodies"], values).rowcount

    def checkpoint(self) -> None:
        """Move the log of the file into the file, so that it does not grow. Waits for no reader."""
        with self._in_place():
            self._run("checkpoint")

    def check(self) -> None:
        """Check that the files are in place. A whole inbox that replaces them is opened."""
        with self._in_place():
            pass

    def is_in_place(self) -> bool:
        """Whether the files at the paths are those that are open. For any thread."""
        files = self._files
        try:
            same = bool(files) and all(file.is_in_place() for file in files)
            # The file itself never shrinks; its log does.
            return same and not files[0].is_cut()
        except OSError:
            return False

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Refuse work if the files are not in place, and its result if they no longer are."""
        if not (self.is_in_place() and self._is_as_noted()):
            self._open_again()
        try:
            yield
            if not self.is_in_place():
                raise self._not_in_place()
        finally:
            self._note()

    def _open(self) -> None:
        with using(self._path):
            self._connection = connected(self._path)
            try:
                prepare(
                    self._connection,
                    self._path,
                    application_id=INBOX_ID,
                    version=VERSION,
                    create=_CREATE,
                )
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
                # Makes the log and its index.
                self._run("checkpoint")
                paths = (self._path.with_name(FILE_NAME + end) for end in ("", "-wal", "-shm"))
                self._files = tuple(map(HeldFile, paths))
            except BaseException:
                self._close()
                raise

    def _close(self) -> None:
        self._connection.close()
        files, self._files = self._files, ()
        for file in files:
            file.close()

    def _open_again(self) -> None:
        """Open a whole inbox that was put in place of the open one.

        Raises:
            InboxUnusable: there is none, or it is not safe: the open files were written to, or
                another receiver may hold the lock.
        """
        if self._files:
            if not self._is_as_noted():
                raise self._not_in_place()
            # The old file, wherever it is, gets what is only in its log. The log is empty then, and
            # does no harm to a new file that is beside it.
            ((is_busy, *_),) = self._run("empty_log")
            self._note()
            if is_busy:
                raise self._not_in_place()
        if not (self._path.exists() and self._holds_lock()):
            raise self._not_in_place()
        self._close()
        self._open()
        try:
            last = self._run("get_last_seq")
            check_one_inbox(self._home, read_progress(self._home), last[0][0] if last else 0)
        except BaseException:
            self._close()
            raise
        log.warning("The inbox %s was replaced, and opened again.", self._path)

    def _holds_lock(self) -> bool:
        try:
            return os.path.samestat(lock_path(self._home).stat(), self._lock_file)
        except OSError:
            return False

    def _is_as_noted(self) -> bool:
        # The index has no content of its own.
        return all(file.is_as_noted() for file in self._files[:2])

    def _note(self) -> None:
        for file in self._files:
            file.note()

    def _not_in_place(self) -> InboxUnusable:
        return InboxUnusable(
            f"{self._path}, or its -wal or -shm, was deleted, replaced or changed while the "
            "receiver runs. Nothing is stored, and senders are told to send again (503). Put the "
            f"files back, or restore {self._path.parent} from a backup; then restart `almanac "
            "receive`."
        )

    def _store(self, arrival: Arrival, received_at: int) -> StoreResult:
        digest = hashlib.sha256(arrival.body).digest()
        head = delivery_head(arrival.body)
        delivery_id = arrival.header_id or head.delivery_id or f"sha256:{digest.hex()}"
        received = [row[0] for row in self._run("get_received", delivery_id=delivery_id)]
        if digest in received:
            return "duplicate"
        trouble = ID_REUSED if received else head.why_unreadable
        self._run(
            "add",
            delivery_id=delivery_id,
            body_sha256=digest,
            received_at=received_at,
            kind=head.kind,
            event_id=head.event_id,
            bytes=len(arrival.body),
            trouble=trouble,
            body=arrival.body,
        )
        return "stored" if trouble is None else "set aside"

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(SQL[statement], values).fetchall()


class InboxReader:
    """Reads the inbox of a home while it is written. An absent file is an empty inbox."""

    def __init__(self, home: Home) -> None:
        self._path = inbox_path(home)

    def last(self) -> tuple[int, datetime] | None:
        """Return seq and receipt of the newest delivery; None if there is none. Reads one row.

        Raises:
            InboxUnusable: the file can't be read; as all methods here.
        """
        for seq, received_at in self._run("get_last_seq"):
            return seq, instant_of(received_at)
        return None

    def first_receipt(self, *, after: int) -> datetime | None:
        """Return when the first delivery after seq `after` was received."""
        for (received_at,) in self._run("get_first_receipt", after=after):
            return instant_of(received_at)
        return None

    def last_receipts(self, event_ids: Iterable[str]) -> dict[str, datetime]:
        """Return when the newest delivery of each event was received, by event id."""
        found: dict[str, datetime] = {}
        with self._connected() as connection:
            if connection is None:
                return found
            for event_id in event_ids:
                values = {"event_id": event_id}
                (newest,) = connection.execute(SQL["get_last_receipt_of_event"], values).fetchone()
                if newest is not None:
                    found[event_id] = instant_of(newest)
        return found

    def received_since(self, since: datetime, *, gap: timedelta) -> datetime | None:
        """Return the first receipt from `since` on after which no pause is longer than `gap`.

        Reads the deliveries after it alone. None if there is none.
        """
        first: datetime | None = None
        with self._connected() as connection:
            for (received_at,) in connection.execute(SQL["list_receipts"]) if connection else ():
                at = instant_of(received_at)
                if at < since or (first is not None and first - at > gap):
                    break
                first = at
        return first

    def sizes(self, *, after: int, limit: int) -> list[tuple[int, int]]:
        """Return seq and bytes of the first deliveries with `after` < seq, in order of receipt."""
        return self._run("list_sizes", after=after, limit=limit)

    def pending(self, *, after: int, to: int) -> list[InboxDelivery]:
        """Return the deliveries with `after` < seq <= `to` that can be landed, with bodies."""
        return _deliveries(self._run("list_pending", after=after, to=to))

    def by_seq(self, seq: int) -> InboxDelivery | None:
        return next(iter(_deliveries(self._run("list_by_seq", seq=seq))), None)

    def by_id(self, delivery_id: str) -> list[InboxDelivery]:
        return _deliveries(self._run("list_by_id", delivery_id=delivery_id))

    def newest(self, limit: int) -> list[InboxDelivery]:
        return _deliveries(self._run("list_newest", limit=limit))

    def in_trouble(self, limit: int) -> list[InboxDelivery]:
        return _deliveries(self._run("list_in_trouble", limit=limit))

    def of_unknown_kinds(self, limit: int) -> list[InboxDelivery]:
        """Return the newest deliveries of a kind that this version does not know."""
        known = json.dumps(sorted(WEBHOOK_MEANINGS))
        return _deliveries(self._run("list_of_unknown_kinds", known=known, limit=limit))

    def count_in_trouble(self) -> int:
        """Return how many were in trouble at their receipt, settled ones too."""
        return sum(count for (count,) in self._run("count_in_trouble"))

    def old_bodies(self, *, before: datetime, landed_to: int) -> tuple[int, int]:
        """Return the number and bytes of the bodies that `clear_bodies` would clear."""
        values = {"before": micros(before), "landed_to": landed_to}
        return next(iter(self._run("sum_old_bodies", **values)), (0, 0))

    def refusals(self) -> list[RefusalCount]:
        return [
            RefusalCount(reason, requests, instant_of(last_at))
            for reason, requests, last_at in self._run("list_refusals")
        ]

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(SQL[statement], values).fetchall() if connection else []

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection | None]:
        if not self._path.exists():
            yield None
            return
        with (
            using(self._path),
            closing(connected(self._path, read_only=True, wal=True)) as connection,
        ):
            # A file whose maker was killed, or is at it, has no tables yet.
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            yield connection if version else None


def _deliveries(rows: Iterable[tuple[Any, ...]]) -> list[InboxDelivery]:
    return [
        InboxDelivery(seq, delivery_id, instant_of(received_at), *others)
        for seq, delivery_id, received_at, *others in rows
    ]
