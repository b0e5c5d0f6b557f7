"""The server's store over the synthetic world: a view for any time, the recent ones cached.

A view of a time near a cached one is made by editing that one, so a clock that runs or advances
costs only the changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from threading import Lock
from typing import Final

from catalog.contract.constants import IMPACT_MAJOR, WEBHOOK_MATERIAL
from catalog.contract.plans import day_start
from catalog.sandbox.world.lifecycle import collector_paused
from catalog.sandbox.world.truth import Change, TrueEvent
from catalog.sandbox.world.world import World
from catalog.server.memory_view import CoinBook, EventIndex, MemoryView
from catalog.server.store import CatalogChange, ChangeKind, StoredCategory, StoredCoin, StoredEvent

_VIEWS_MAX = 12
_EDIT_AT_MOST = timedelta(days=60)
"""Beyond this distance a new view is faster than an edited one."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _CachedView:
    """A view and the times, `first <= t < end`, at which it is true."""

    first: datetime
    end: datetime
    view: MemoryView
    cancelled: dict[str, datetime]


@collector_paused()
def new_view(world: World, instant: datetime) -> tuple[MemoryView, dict[str, datetime]]:
    """Return a view made from every event, and the cancelled events."""
    events = world.events_at(instant).values()
    cancelled = {event_id: at for at, event_id in world.cancellations_at(instant)}
    view = MemoryView(
        EventIndex.of(map(stored_event, events)),
        coins=_book(world, day_start(instant)),
        categories=tuple(
            StoredCategory(category.id, category.name) for category in world.categories
        ),
        cancelled=cancelled,
    )
    return view, cancelled


@lru_cache(maxsize=_VIEWS_MAX)
def _book(world: World, day: datetime) -> CoinBook:
    return CoinBook(
        StoredCoin(coin.slug, coin.symbol, coin.name, coin.rank, coin.tracked, coin.icon_url)
        for coin in world.coins_at(day)
    )


class Views:
    """The views of a world, from any thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cached: list[_CachedView] = []
        self._lock = Lock()

    def at(self, instant: datetime) -> MemoryView:
        with self._lock:
            for place, cached in enumerate(self._cached):
                if cached.first <= instant < cached.end:
                    if place:
                        self._cached.insert(0, self._cached.pop(place))
                    return cached.view
            cached = self._make(instant)
            self._cached = [cached, *self._cached[: _VIEWS_MAX - 1]]
            return cached.view

    def _make(self, instant: datetime) -> _CachedView:
        near = min(self._cached, key=lambda cached: abs(cached.first - instant), default=None)
        if near is None or abs(near.first - instant) > _EDIT_AT_MOST:
            view, cancelled = new_view(self._world, instant)
        else:
            view, cancelled = self._edited(near, instant)
        tomorrow = day_start(instant) + _DAY
        following = self._world.changes(instant, tomorrow)
        return _CachedView(instant, following[0].at if following else tomorrow, view, cancelled)

    def _edited(
        self, near: _CachedView, instant: datetime
    ) -> tuple[MemoryView, dict[str, datetime]]:
        between = self._world.changes(min(near.first, instant), max(near.first, instant))
        changed = {change.event_id for change in between}
        edits: dict[str, StoredEvent | None] = {}
        cancelled = near.cancelled
        for event_id in sorted(changed):
            event = self._world.event_at(event_id, instant)
            edits[event_id] = None if event is None else stored_event(event)
            cancelled_at = self._world.cancelled_at(event_id, instant)
            if cancelled.get(event_id) != cancelled_at:
                cancelled = dict(cancelled)
                cancelled.pop(event_id, None)
                if cancelled_at is not None:
                    cancelled[event_id] = cancelled_at
        view = near.view.edited(
            edits, coins=_book(self._world, day_start(instant)), cancelled=cancelled
        )
        return view, cancelled


@lru_cache(maxsize=2)
def _views_of(world: World) -> Views:
    """Return one set of views for the sandboxes of a process, such as those of tests: they often
    start at times that are near each other."""
    return Views(world)


class SandboxStore:
    """`CatalogStore` over a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._views = _views_of(world)

    @property
    def identity(self) -> str:
        return f"sandbox seed={self._world.seed} pace={self._world.pace:g}"

    def at(self, instant: datetime) -> MemoryView:
        return self._views.at(instant)

    def newest(self, instant: datetime) -> datetime:
        return instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        """Return the changes that webhooks report: those that are material, and no withdrawal."""
        return [
            reported
            for change in self._world.changes(after, until)
            for reported in self._reported(change)
        ]

    def _reported(self, change: Change) -> Iterator[CatalogChange]:
        """Yield what webhooks report of a change of the world: nothing, one kind or two."""
        kinds = set(change.kinds)
        cancelled_at = self._world.cancelled_at(change.event_id, change.at)
        if cancelled_at is not None:
            last = self._world.history(change.event_id, change.at)[-1].event
            yield CatalogChange(change.at, "events.cancelled", stored_event(last), cancelled_at)
            return
        event = self._world.event_at(change.event_id, change.at)
        if event is None or not (kinds & _OF_THE_WHOLE or self._is_material(change)):
            return
        kind: ChangeKind = "events.created" if "created" in kinds else "events.updated"
        yield CatalogChange(change.at, kind, stored_event(event))
        if _is_major(event) and not self._was_major_before(change):
            yield CatalogChange(change.at, "events.high-impact", stored_event(event))

    def _is_material(self, change: Change) -> bool:
        before, after = self._world.history(change.event_id, change.at)[-2:]
        return any(
            getattr(before.event, name) != getattr(after.event, name) for name in WEBHOOK_MATERIAL
        )

    def _was_major_before(self, change: Change) -> bool:
        *earlier, _ = self._world.history(change.event_id, change.at)
        return any(_is_major(version.event) for version in earlier)


_OF_THE_WHOLE: Final = frozenset({"created", "restored"})
"""Changes that are reported whatever the fields are."""


def _is_major(event: TrueEvent) -> bool:
    return event.impact is not None and event.impact >= IMPACT_MAJOR


_read_fields = attrgetter(*TrueEvent.__dataclass_fields__)


def stored_event(event: TrueEvent) -> StoredEvent:
    """Return an event of the world as the server stores it: the fields have the same names."""
    return StoredEvent(*_read_fields(event))
