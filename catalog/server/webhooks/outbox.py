"""The deliveries still to be made, in SQLite: they survive a restart, a crash, a power cut.

New deliveries and the endpoint's position in the feed are written in one transaction, so that no
change is skipped or enqueued twice. Only the outcome of an attempt may be lost, by a power
cut: the delivery is then made again.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal, NamedTuple, Self

from almanac.core.statements import Statements
from catalog import ServerError

FILE_NAME = "deliveries.sqlite"
"""The name has the version of the tables, so that a file with older tables is not read."""
_SQL: Final = Statements("catalog.server.webhooks")


@dataclass(frozen=True, slots=True)
class OutboxDelivery:
    """One delivery that was not accepted yet, of a change that became known at `created_at`.

    `next_attempt_at` is wall time, None for a dead letter.
    """

    id: str
    endpoint_id: str
    kind: str
    body: bytes = field(repr=False)
    created_at: datetime
    next_attempt_at: datetime | None
    attempts: int = 0
    last_status: int | None = None
    last_error: str | None = None

    @property
    def state(self) -> Literal["waiting", "dead"]:
        return "dead" if self.next_attempt_at is None else "waiting"


class FeedPosition(NamedTuple):
    """An endpoint's position in the feed; `known_from` is the newest time up to this position."""

    feed_id: str
    seq: int
    known_from: datetime


class Outbox:
    """One outbox file, made if it is absent. Safe to call from several threads.

    Raises:
        ServerError: the file can't be used.
    """

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        path.touch(mode=0o600)
        self._connection = sqlite3.connect(
            path, timeout=10.0, isolation_level="IMMEDIATE", check_same_thread=False
        )
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            for name in ("create_deliveries", "create_deliveries_due", "create_places"):
                self._run(name)
        except sqlite3.Error as error:
            self._connection.close()
            raise ServerError(
                f"{path} can't be used as an outbox: {error}. It was not changed; move it away"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def positions(self) -> dict[str, FeedPosition]:
        rows = self._run("list_places")
        return {row[0]: FeedPosition(row[1], row[2], _time(row[3])) for row in rows}

    def enqueue(
        self, endpoint_id: str, place: FeedPosition, deliveries: Iterable[OutboxDelivery] = ()
    ) -> None:
        """Add deliveries for an endpoint and advance its position in the feed, in one durable
        transaction."""
        added = [
            (
                *(each.id, each.endpoint_id, each.kind, each.body),
                *(_micros(each.created_at), _micros(each.next_attempt_at)),
            )
            for each in deliveries
        ]
        with self._lock:
            # All else is committed without waiting for the disk.
            self._connection.execute("PRAGMA synchronous = FULL")
            with self._connection:
                self._connection.executemany(_SQL["enqueue"], added)
                moved = (endpoint_id, place.feed_id, place.seq, _micros(place.known_from))
                self._connection.execute(_SQL["set_place"], moved)
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def counts(self) -> list[tuple[str, str, int]]:
        """Return endpoint, state and number of the deliveries."""
        return self._run("count_deliveries")

    def waiting(self) -> frozenset[str]:
        """Return the endpoints that have deliveries to be sent."""
        return frozenset(each for each, state, _ in self.counts() if state == "waiting")

    def due(self, endpoint_id: str, *, now: datetime, limit: int) -> tuple[OutboxDelivery, ...]:
        """Return the deliveries due to an endpoint at this wall time, the longest due first."""
        rows = self._run("list_due", endpoint_id=endpoint_id, now=_micros(now), limit=limit)
        return tuple(map(_delivery, rows))

    def pending(self, *, limit: int = 1_000) -> tuple[OutboxDelivery, ...]:
        return tuple(map(_delivery, self._run("list_deliveries", dead=False, limit=limit)))

    def dead(self, *, limit: int = 1_000) -> tuple[OutboxDelivery, ...]:
        return tuple(map(_delivery, self._run("list_deliveries", dead=True, limit=limit)))

    def mark_delivered(self, delivery_id: str) -> None:
        self._run("mark_delivered", id=delivery_id)

    def mark_failed(
        self, delivery_id: str, *, status: int | None, error: str | None, retry_at: datetime | None
    ) -> None:
        """Count a failed attempt; `retry_at` None makes it a dead letter."""
        due = _micros(retry_at)
        self._run("mark_failed", id=delivery_id, status=status, error=error, due=due)

    def drop(self, endpoint_id: str, *, error: str) -> None:
        """Delete the position of an endpoint, and make its pending deliveries dead letters."""
        self._run("mark_dead", endpoint_id=endpoint_id, error=error)
        self._run("delete_place", endpoint_id=endpoint_id)

    def requeue(self, delivery_id: str, *, now: datetime) -> None:
        """Make a dead letter due immediately, with the whole retry schedule ahead.

        Raises:
            ServerError: it is pending, delivered or unknown.
        """
        if not self._run("requeue", id=delivery_id, now=_micros(now)):
            text = f"{delivery_id!r} is not a dead delivery; `deliveries --dead` lists them"
            raise ServerError(text)

    def _run(self, statement: str, **values: Any) -> list[Any]:
        with self._lock, self._connection:
            return self._connection.execute(_SQL[statement], values).fetchall()


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1e6)


def _time(micros: int | None) -> Any:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def _delivery(row: Any) -> OutboxDelivery:
    fields: list[Any] = [*row[1:5], _time(row[5]), _time(row[6]), *row[7:]]
    return OutboxDelivery(*fields)
