"""A replay: the versions of a published file in order of knowledge, under a virtual clock.

`/replay/clock` shows, sets, steps and pauses the clock.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_text
from almanac.history_replay import ChangeDigest
from application.web.mirror.publications import open_publication
from catalog.contract import errors
from catalog.server.control_path import CLOCK_TIME, decode_order
from catalog.server.sql_store import SqlStore
from catalog.server.webhooks.sender import WebhookSender

SPEED_MAX: Final = 1e9
_END_NOTICED_S: Final = 0.1


class ReplayClock:
    """A thread-safe clock, stopped at first. It stops at `until`, and never leaves the range."""

    def __init__(self, start: datetime, until: datetime, *, speed: float) -> None:
        self.start = start
        self.until = until
        self.speed = speed
        self._lock = Lock()
        self._at = start
        self._since: float | None = None

    @property
    def running(self) -> bool:
        return self._since is not None and self.now() < self.until

    def now(self) -> datetime:
        with self._lock:
            return self._now()

    def change(
        self, *, at: datetime | None = None, speed: float | None = None, running: bool | None = None
    ) -> None:
        """Move to a time of the range, set the speed, and start or pause; None changes nothing."""
        with self._lock:
            runs = self._since is not None if running is None else running
            self._at = self._now() if at is None else min(max(at, self.start), self.until)
            self.speed = speed or self.speed
            self._since = monotonic() if runs else None

    def _now(self) -> datetime:
        if self._since is None:
            return self._at
        passed_s = (monotonic() - self._since) * self.speed
        left_s = (self.until - self._at).total_seconds()
        return self.until if passed_s >= left_s else self._at + timedelta(seconds=passed_s)


class ChangesKnown(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that are known at the clock's time, with their hash (`ChangeDigest`)."""

    known: int
    total: int
    sha256: str


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """The clock and the changes that are known at its time."""

    now: datetime
    since: datetime
    until: datetime
    speed: float
    running: bool
    ended: bool
    delivered: bool
    """Whether every endpoint accepted the webhooks of all changes that are known."""
    webhooks: dict[str, dict[str, int]]
    """By endpoint (`WebhookSender.counts`)."""
    changes: ChangesKnown


class ReplayOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sets, advances or steps the clock, sets its speed, starts or pauses it; in that order."""

    now: str | None = None
    advance_s: Annotated[float, Meta(ge=-1e10, le=1e10)] | None = None
    step: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """Advances to the time at which this many more changes are known."""
    speed: Annotated[float, Meta(gt=0, le=SPEED_MAX)] | None = None
    running: bool | None = None


class Replay:
    """The changes of a file from `start` to `until`, by default the last pull. Its clock stands.

    The file stays open, so a later publication changes nothing. The place of a version is its
    number since the start. `on_end` is called on another thread, each time the clock comes to its
    end.

    Raises:
        WarehouseError: the file can't be served, or does not know the whole range.
    """

    def __init__(
        self,
        warehouse: Path,
        start: datetime,
        until: datetime | None = None,
        *,
        speed: float = 1.0,
        on_end: Callable[[ReplayState], None] = lambda _: None,
    ) -> None:
        start = start.astimezone(UTC)
        self._file = open_publication(warehouse, start)
        self.close = self._file.connection.close
        self._digest, self._digesting = ChangeDigest(), Lock()
        self._on_end = on_end
        span = self.span = self._file.span
        until = (span.last or start) if until is None else until.astimezone(UTC)
        self.clock = ReplayClock(start, until, speed=speed)
        self.now = self.clock.now
        if span.first is None or span.last is None:
            known = "nothing was pulled yet"
        else:
            known = f"history is from {utc_text(span.first)} to {utc_text(span.last)}"
            if span.first <= start < until <= span.last:
                self._file.ask("make_feed", start=start, until=until)
                return
        self.close()
        raise WarehouseError(
            f"there is no replay from {utc_text(start)} to {utc_text(until)}: {known}. "
            "Nothing was started."
        )

    def store(self) -> SqlStore:
        return self._file.store

    def state(self, sender: WebhookSender) -> ReplayState:
        """Return the clock's state and the changes that are known now."""
        clock, head = self.clock, self._file.store.head
        now, running, sent = clock.now(), clock.running, sender.delivered_until
        known = head(now)
        changes = ChangesKnown(known=known, total=head(clock.until), sha256=self._hash(known))
        return ReplayState(
            now=now,
            since=clock.start,
            until=clock.until,
            speed=clock.speed,
            running=running and now < clock.until,
            ended=now >= clock.until,
            delivered=sent is not None and head(sent) >= known,
            webhooks=sender.counts(),
            changes=changes,
        )

    def obey(self, sender: WebhookSender, method: str, path: str, body: bytes) -> ReplayState:
        """Answer the control path. After an order that can't be obeyed, the clock is as before."""
        if path:
            raise errors.NotFound("No such path")
        if method == "PUT":
            order = decode_order(body, ReplayOrder)
            try:
                at = self._find_time(order)
            except ValueError as error:
                raise errors.InvalidParameter(f"the clock was not changed: {error}") from error
            self.clock.change(at=at, speed=order.speed, running=order.running)
            sender.wake()
        elif method != "GET":
            raise errors.MethodNotAllowed(headers={"Allow": "GET, PUT"})
        return self.state(sender)

    async def watch_end(self, sender: WebhookSender) -> None:
        """Call `on_end` each time the clock comes to its end."""
        reported = False
        while True:
            await asyncio.sleep(_END_NOTICED_S)
            ended = self.clock.now() >= self.clock.until
            if ended and not reported:
                await asyncio.to_thread(lambda: self._on_end(self.state(sender)))
            reported = ended

    def _find_time(self, order: ReplayOrder) -> datetime | None:
        """Return the time to which a request sets the clock; None if it does not set it."""
        if (order.now, order.advance_s, order.step) == (None, None, None):
            return None
        start, until, moved = self.clock.start, self.clock.until, self.clock.now()
        if order.now is not None:
            moved = CLOCK_TIME.value(order.now)
            if not start <= moved <= until:
                raise ValueError(
                    f"now: {order.now} is outside the replay, which is from {start.isoformat()} to "
                    f"{until.isoformat()}"
                )
        if order.advance_s is not None:
            moved += timedelta(seconds=order.advance_s)
        if order.step is not None:
            place = self._file.store.head(moved) + order.step
            rows = self._file.ask("list_feed", after=place - 1, until=place)
            moved = rows[0][2] if rows else until
        return moved.astimezone(UTC)

    def _hash(self, count: int) -> str:
        """Return the hash of the first `count` changes."""
        with self._digesting:
            if self._digest.count > count:
                self._digest = ChangeDigest()
            for row in self._file.ask("list_feed", after=self._digest.count, until=count):
                self._digest.add(*row)
            return self._digest.hexdigest()
