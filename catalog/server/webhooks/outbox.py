"""The deliveries still to be made, in SQLite: they survive a restart, a crash, a power cut.

Every delivery's id is derived from its change, so none is enqueued twice, and the watermark moves
in the transaction that enqueues. Only the outcome of an attempt may be lost, by a power cut: the
delivery is then made again. The statements are in `outbox.sql`.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, Literal, Self

from catalog.server.accounts import ServiceDirError

FILE_NAME = "outbox.sqlite"
LIST_LIMIT = 1_000
APPLICATION_ID = 1097617250
VERSION = 1
_CREATE = (
    "create_deliveries",
    "create_deliveries_pending",
    "create_deliveries_dead",
    "create_watermark",
    "create_subscriptions",
    "set_application_id",
    "set_version",
)
_BUSY_TIMEOUT_S = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FILE = Path(__file__).with_name("outbox.sql")
_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)

State = Literal["pending", "delivered", "dead"]


@dataclass(frozen=True, slots=True)
class OutboxDelivery:
    """One delivery. `created_at` is when the change happened, on the catalog's clock;
    `next_attempt_at` is wall time, and None unless the delivery is pending."""

    id: str
    endpoint_id: str
    kind: str
    body: bytes = field(repr=False)
    created_at: datetime
    next_attempt_at: datetime | None = None
    attempts: int = 0
    state: State = "pending"
    last_status: int | None = None
    last_error: str | None = None


def delivery_id(
    endpoint_id: str, event_id: str, *, kind: str, at: datetime, version: int | None = None
) -> str:
    """Return the id of the only delivery that reports a change to an endpoint."""
    instant = at.astimezone(UTC).isoformat(timespec="microseconds")
    numbered = () if version is None else (str(version),)
    text = "\n".join((endpoint_id, event_id, instant, kind, *numbered))
    return f"evt_dlv_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class Outbox:
    """One outbox file, made if it is absent. Safe to call from several threads.

    Raises:
        ServiceDirError: the file is not an outbox, or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made first to set its mode. Never opened if it exists: closing it would drop the locks
        # that SQLite holds on it elsewhere in this process.
        with suppress(FileExistsError):
            path.touch(mode=0o600, exist_ok=False)
        self._connection = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except (ServiceDirError, sqlite3.Error) as error:
            self._connection.close()
            if type(error) is sqlite3.DatabaseError:  # what SQLite raises for "not a database"
                raise ServiceDirError(self._unreadable(str(error))) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def watermark(self) -> datetime | None:
        """Return the catalog's instant up to which changes are enqueued; None at the start."""
        rows = self._run("get_watermark")
        return _instant(rows[0][0]) if rows else None

    def subscriptions(self) -> dict[str, datetime]:
        """Return, by endpoint, the catalog's instant after which changes are sent to it."""
        return {endpoint: _instant(since) for endpoint, since in self._run("list_subscriptions")}

    def enqueue(
        self,
        deliveries: Iterable[OutboxDelivery],
        *,
        watermark: datetime,
        subscriptions: Mapping[str, datetime],
    ) -> None:
        """Add the deliveries that are new; move the watermark; set the given subscriptions.

        All in one transaction.

        Raises:
            ValueError: a delivery is not pending, so it would never be sent; nothing was added.
        """
        with self._transaction():
            for endpoint_id, since in subscriptions.items():
                self._run("set_subscription", endpoint_id=endpoint_id, since=_micros(since))
            for delivery in deliveries:
                if delivery.next_attempt_at is None:
                    raise ValueError(f"{delivery.id} has no time at which it is due")
                self._run(
                    "enqueue",
                    id=delivery.id,
                    endpoint_id=delivery.endpoint_id,
                    kind=delivery.kind,
                    body=delivery.body,
                    created_at=_micros(delivery.created_at),
                    next_attempt_at=_micros(delivery.next_attempt_at),
                )
            self._run("set_watermark", instant=_micros(watermark))

    def waiting_endpoints(self) -> tuple[str, ...]:
        """Return the endpoints that have pending deliveries, due or not."""
        return tuple(endpoint for (endpoint,) in self._run("list_waiting_endpoints"))

    def due(self, endpoint_id: str, *, now: datetime, limit: int) -> tuple[OutboxDelivery, ...]:
        """Return the deliveries due to an endpoint at this wall time, the longest due first."""
        rows = self._run("list_due", endpoint_id=endpoint_id, now=_micros(now), limit=limit)
        return tuple(map(_delivery, rows))

    def next(self, endpoint_id: str, *, limit: int) -> tuple[OutboxDelivery, ...]:
        """Return the pending deliveries of an endpoint, due or not, in the order of enqueuing."""
        rows = self._run("list_in_order", endpoint_id=endpoint_id, limit=limit)
        return tuple(map(_delivery, rows))

    def pending(self, *, limit: int = LIST_LIMIT) -> tuple[OutboxDelivery, ...]:
        return tuple(map(_delivery, self._run("list_pending", limit=limit)))

    def dead(self, *, limit: int = LIST_LIMIT) -> tuple[OutboxDelivery, ...]:
        return tuple(map(_delivery, self._run("list_dead", limit=limit)))

    def mark_delivered(self, delivery_id: str, *, status: int) -> None:
        with self._without_sync():
            self._run("mark_delivered", id=delivery_id, status=status)

    def mark_failed(
        self, delivery_id: str, *, status: int | None, error: str | None, retry_at: datetime | None
    ) -> None:
        """Count a failed attempt; `retry_at` None makes it a dead letter."""
        with self._without_sync():
            self._run(
                "mark_failed",
                id=delivery_id,
                status=status,
                error=error,
                next_attempt_at=None if retry_at is None else _micros(retry_at),
            )

    def mark_dead(self, endpoint_id: str, *, error: str) -> None:
        """Make all pending deliveries of an endpoint dead letters."""
        self._run("mark_dead", endpoint_id=endpoint_id, error=error)

    def requeue(self, delivery_id: str, *, now: datetime) -> None:
        """Make a dead letter due immediately, with the whole retry schedule ahead.

        Raises:
            ServiceDirError: it is pending, delivered or unknown.
        """
        if not self._run("requeue", id=delivery_id, now=_micros(now)):
            raise ServiceDirError(
                f"{delivery_id!r} is not a dead delivery; `deliveries --dead` lists them"
            )

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(_statements()[statement], values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite itself ends the transaction on some errors, a full disk among them.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        """Commit without waiting for the disk, which on a busy one allows some 40 commits a second.

        A power cut loses only the end: never a delivery without its watermark.
        """
        with self._lock:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                yield
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def _prepare(self) -> None:
        with self._transaction():
            (application_id,) = self._connection.execute("PRAGMA application_id").fetchone()
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if (application_id, version, tables) == (0, 0, 0):
                for statement in _CREATE:
                    self._run(statement)
            elif application_id != APPLICATION_ID:
                raise ServiceDirError(self._unreadable("it belongs to another program"))
            elif version != VERSION:
                raise ServiceDirError(
                    self._unreadable(f"it has version {version}, this program reads {VERSION}")
                )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    def _unreadable(self, reason: str) -> str:
        return f"{self._path} is not an outbox: {reason}. It was not changed; move it away"


@cache
def _statements() -> dict[str, str]:
    """Return the statements of outbox.sql by their names."""
    _, *parts = _NAMED.split(_FILE.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _instant(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def _delivery(row: tuple[Any, ...]) -> OutboxDelivery:
    names = ("id", "endpoint_id", "kind", "body", "created_at", "state", "attempts")
    values = dict(zip((*names, "next_attempt_at", "last_status", "last_error"), row, strict=True))
    values["created_at"] = _instant(values["created_at"])
    due = values["next_attempt_at"]
    values["next_attempt_at"] = None if due is None else _instant(due)
    return OutboxDelivery(**values)
