"""The replay server: the interface over recorded history, whose time is a virtual clock.

with ReplayServer(Path("data/warehouse.duckdb"), start, state_dir=Path("data/mirror")) as replay:
    httpx.get(replay.base_url + "/v2/events")

Webhooks go to the endpoints of the folder, in the order in which the changes became known. Their
outbox is new in each replay, so that another replay sends everything again, as the same bytes. A
clock that is set back sends nothing twice.

The published file stays open, so a publication during the replay changes nothing. The changes are
in the order of knowledge: `known_from`, event, version; the place of one is its number since the
start.

`/replay/clock` shows, sets, steps and pauses the clock, for programs on this machine. Keys and
endpoints are read from the mirror's folder, which a mirror may use at the same time.
"""

import asyncio
import hmac
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, Unpack

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from almanac.change_digest import ChangeDigest
from almanac.errors import WarehouseError
from catalog.contract import errors
from catalog.server.accounts import UsageBook
from catalog.server.control_path import answer_order, decode_order, read_instant
from catalog.server.exchange import Exchange, attach, dated
from catalog.server.routes import CursorSigner
from catalog.server.state_dir import ServiceDir
from catalog.server.store import CatalogChange, CatalogView
from catalog.server.webhooks.sender import Pusher, SenderOptions
from pipeline.mirror.knowledge_routes import ChangePage, KnownChange
from pipeline.mirror.mirror import HistoryServer, Served, cursor_secret
from pipeline.mirror.past_view import PastViews
from pipeline.mirror.published_catalog import CatalogVersion, KnownSpan, PublishedCatalog, utc_text
from pipeline.mirror.pushed_changes import catalog_changes
from pipeline.mirror.replay_clock import ReplayClock
from pipeline.mirror.version_feed import FeedPlace, ForeignPlace, to_micros

CONTROL_PATH: Final = "/replay/clock"
_END_NOTICED_S: Final = 0.1
PUSH: Final = SenderOptions(retry_after_s=(1.0,), poll_s=0.1, in_order=True)
"""A receiver that fails is tried again each second, and holds up its own deliveries only."""


class ChangesKnown(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that are known at the clock's time, with their hash (`ChangeDigest`)."""

    known: int
    total: int
    sha256: str


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """The clock and the changes that are known at its time."""

    now: datetime
    start: datetime = msgspec.field(name="from")
    until: datetime
    speed: float
    running: bool
    ended: bool
    delivered: bool
    """Whether every endpoint accepted the webhooks of all changes that are known."""
    changes: ChangesKnown


class ReplayOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sets, advances or steps the clock, sets its speed, starts or pauses it; in that order."""

    now: str | None = None
    advance_s: float | None = None
    step: int | None = None
    """To the time at which that many more changes are known."""
    speed: float | None = None
    running: bool | None = None


class ReplayStore:
    """`CatalogStore` and `KnowledgeStore` over a file, from a start to an end.

    Without `until`, the replay ends at the last pull.

    Raises:
        WarehouseError: the file is missing or can't be served, or does not know the whole range.
    """

    is_recorded: Final = True

    def __init__(self, path: Path, start: datetime, until: datetime | None = None) -> None:
        self.catalog = PublishedCatalog(path)
        self.bounds: KnownSpan = self.catalog.bounds
        try:
            self.start, self.until = _check_range(self.bounds, start, until)
        except WarehouseError:
            self.close()
            raise
        self._views = PastViews(self.catalog)
        self._order = self.catalog.order_of_knowledge(self.start, self.until)
        self._known_at = [known_from for known_from, _, _ in self._order]
        self._digest = ChangeDigest()
        self._digesting = Lock()

    def close(self) -> None:
        self.catalog.close()

    @property
    def total(self) -> int:
        """The number of changes from the start to the end."""
        return len(self._order)

    @property
    def identity(self) -> str:
        return f"replay {self.catalog.signature}"

    def never_known(self) -> frozenset[str]:
        return self.catalog.never_known

    def at(self, instant: datetime) -> CatalogView:
        return self._views.at(instant)

    def newest(self, instant: datetime) -> datetime:
        return instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        versions = self.catalog.versions_between(after, until)
        return list(catalog_changes(versions, self.catalog))

    def history(self, event_id: str, instant: datetime) -> list[CatalogVersion]:
        return self.catalog.history(event_id, instant)

    def changes_after(self, place: FeedPlace, *, until: datetime | None, limit: int) -> ChangePage:
        """Return the changes after a place, in order of knowledge.

        Raises:
            ForeignPlace: the place is not one of this replay.
        """
        if place.seq and self._place(place.seq) != place:
            raise ForeignPlace(f"{place.seq} is not a place of this replay")
        end = len(self._order) if until is None else bisect_right(self._known_at, until)
        first = place.seq
        if place.since >= 0:
            since = place.since
            first = bisect_right(self._known_at, since, key=to_micros)
        wanted = [(event_id, version) for _, event_id, version in self._order[first:end][:limit]]
        versions = self.catalog.versions(wanted)
        changes = [
            KnownChange(versions[each], self._place(first + n)) for n, each in enumerate(wanted, 1)
        ]
        last = changes[-1].place if changes else self._place(first)
        return ChangePage(changes, max(0, end - first), last)

    def _place(self, seq: int) -> FeedPlace:
        if not 0 < seq <= len(self._known_at):
            return FeedPlace(seq)
        return FeedPlace(seq, to_micros(self._known_at[seq - 1]))

    def count_until(self, instant: datetime) -> int:
        """Return the number of changes that became known from the start to a time."""
        return bisect_right(self._known_at, instant)

    def time_of_step(self, instant: datetime, step: int) -> datetime:
        """Return when the `step`-th next change after a time became known; the end, after all."""
        place = self.count_until(instant) + step
        return self._known_at[place - 1] if place <= len(self._known_at) else self.until

    def digest(self, count: int) -> str:
        """Return the hash of the first `count` changes, as `ChangeDigest` makes it."""
        with self._digesting:
            if self._digest.count > count:
                self._digest = ChangeDigest()
            for known_from, event_id, version in self._order[self._digest.count : count]:
                self._digest.add(event_id, version, known_from)
            return self._digest.hexdigest()


def _check_range(
    bounds: KnownSpan, start: datetime, until: datetime | None
) -> tuple[datetime, datetime]:
    first, last = bounds.first, bounds.last
    if first is None or last is None:
        raise WarehouseError("nothing was pulled yet: this warehouse has no history to replay")
    end = last if until is None else until.astimezone(UTC)
    start = start.astimezone(UTC)
    span = f"history is from {utc_text(first)} to {utc_text(last)}. Nothing was started."
    if start < first:
        raise WarehouseError(f"{utc_text(start)} is before the first pull: {span}")
    if end > last:
        raise WarehouseError(f"{utc_text(end)} is after the last pull: {span}")
    if start >= end:
        raise WarehouseError(
            f"the replay would end at {utc_text(end)}, and not after its start at "
            f"{utc_text(start)}: {span}"
        )
    return start, end


class ReplayServer(HistoryServer):
    """A running replay of a published file, from `start` to `until`, by default the last pull.

    `on_end` is called on another thread, each time the clock comes to its end.

    Raises (start): as HistoryServer, and
        WarehouseError: the warehouse does not know the whole range.
        ValueError: the speed is not above 0.
    """

    def __init__(
        self,
        warehouse: Path,
        start: datetime,
        until: datetime | None = None,
        *,
        speed: float = 1.0,
        paused: bool = False,
        state_dir: Path,
        push: SenderOptions = PUSH,
        on_end: Callable[[ReplayState], None] = lambda _: None,
        **served: Unpack[Served],
    ) -> None:
        super().__init__(warehouse, state_dir=state_dir, **served)
        self._start_at = start
        self._end_at = until
        self._speed = speed
        self._paused = paused
        self._push = push
        self._on_end = on_end

    def state(self) -> ReplayState:
        """Return the clock's state and the changes that are known now."""
        store, clock = self.store, self.clock
        now, running = clock.now(), clock.running
        known = store.count_until(now)
        return ReplayState(
            now=now,
            start=clock.start,
            until=clock.until,
            speed=clock.speed,
            running=running and now < clock.until,
            ended=now >= clock.until,
            delivered=self._is_delivered(known),
            changes=ChangesKnown(known=known, total=store.total, sha256=store.digest(known)),
        )

    def _is_delivered(self, known: int) -> bool:
        mark = self._pusher.enqueued_until
        return (
            mark is not None
            and self.store.count_until(mark) >= known
            and not self._outbox.waiting_endpoints()
        )

    def move(self, order: ReplayOrder) -> None:
        """Obey an order.

        Raises:
            InvalidParameter: the order can't be obeyed; the clock is as before.
        """
        try:
            moved = self._moved(order)
            if order.speed is not None:
                self.clock.set_speed(order.speed)
        except (ValueError, OverflowError) as error:
            raise errors.InvalidParameter(f"the clock was not changed: {error}") from error
        if moved is not None:
            self.clock.set(moved)
        if order.running is not None:
            (self.clock.run if order.running else self.clock.pause)()
        self._pusher.wake()

    def _moved(self, order: ReplayOrder) -> datetime | None:
        if (order.now, order.advance_s, order.step) == (None, None, None):
            return None
        moved = self.clock.now()
        if order.now is not None:
            moved = read_instant(order.now)
            if moved.tzinfo is None:
                raise ValueError(f"now: {order.now} has no time zone; end it with Z")
            if not self.clock.start <= moved <= self.clock.until:
                raise ValueError(
                    f"now: {order.now} is outside the replay, which is from "
                    f"{self.clock.start.isoformat()} to {self.clock.until.isoformat()}"
                )
        if order.advance_s is not None:
            moved += timedelta(seconds=order.advance_s)
        if order.step is not None:
            if order.step < 1:
                raise ValueError(f"step: expected a number of changes above 0, got {order.step}")
            moved = self.store.time_of_step(moved, order.step)
        return moved

    def _app(self, folder: ServiceDir, undo: ExitStack) -> ASGIApp:
        store = self.store = ReplayStore(self._warehouse, self._start_at, self._end_at)
        undo.callback(store.close)
        own = ServiceDir(Path(undo.enter_context(TemporaryDirectory(prefix="almanac-replay-"))))
        cursors = CursorSigner(_replay_secret(cursor_secret(folder.path), store))
        clock = self.clock = ReplayClock(store.start, store.until, speed=self._speed, paused=True)
        receivers = folder.receivers()
        outbox = self._outbox = undo.enter_context(own.outbox())
        # A new outbox would begin with the changes after its first round.
        endpoints = {endpoint.id: store.start for endpoint in receivers.all()}
        outbox.enqueue((), watermark=store.start, subscriptions=endpoints)
        self._pusher = Pusher(store, clock, receivers, outbox, options=self._push)
        app = self._serve(
            store,
            folder,
            undo,
            now=clock.now,
            changes_until=clock.now,
            cursors=cursors,
            usage=UsageBook(own.usage_file()),
            background=(self._watch_end, self._pusher.run),
            clock_moves=True,
        )
        return _ControlLayer(self._guard(app), self)

    def start(self) -> "ReplayServer":
        """Listen; the clock starts when requests are answered."""
        super().start()
        if not self._paused:
            self.clock.run()
        return self

    async def _watch_end(self) -> None:
        reported = False
        while True:
            await asyncio.sleep(_END_NOTICED_S)
            if not self.clock.ended:
                reported = False
            elif not reported:
                reported = True
                state = await asyncio.to_thread(self.state)
                await asyncio.to_thread(self._on_end, state)


class _ControlLayer:
    """ASGI layer that answers the control path."""

    def __init__(self, app: ASGIApp, replay: ReplayServer) -> None:
        self._app = app
        self._replay = replay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != CONTROL_PATH:
            await self._app(scope, receive, send)
            return

        async def run(body: bytes) -> Any:
            if scope["method"] == "PUT":
                self._replay.move(decode_order(body, ReplayOrder))
            elif scope["method"] != "GET":
                raise errors.MethodNotAllowed(headers={"Allow": "GET, PUT"})
            return await asyncio.to_thread(self._replay.state)

        attach(scope, Exchange(now=self._replay.clock.now()))
        await answer_order(scope, receive, dated(scope, send), run)


def _replay_secret(secret: bytes, store: ReplayStore) -> bytes:
    """Return the secret of the cursors: another replay, and the mirror, refuse them."""
    return hmac.digest(secret, f"{store.identity} {store.start.isoformat()}".encode(), "sha256")
