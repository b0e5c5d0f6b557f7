"""The truth of the synthetic catalog at any time, from the lives of its events alone.

A world is a pure function of seed and pace: a result never depends on earlier calls. Times are UTC.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from threading import RLock
from typing import Any, Final

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.announcements import Content
from catalog.sandbox.world.categories import CATEGORIES
from catalog.sandbox.world.dates import DAY_S, find_month, month_start_s, to_seconds
from catalog.sandbox.world.lifecycle import (
    CANCELLED,
    LIFE_DAYS,
    SCHEDULED,
    Life,
    generate_lives,
    pause_garbage_collector,
)
from catalog.sandbox.world.roster import Roster

_TIMES: Final = ("date", "date_end", "last_verified_at", "created_at", "updated_at")


@dataclass(frozen=True, slots=True)
class TrueCoin:
    """A coin on a day. `rank` is None when unranked."""

    slug: str
    symbol: str
    name: str
    rank: int | None
    tracked: bool
    icon_url: str


@dataclass(frozen=True, slots=True)
class TrueEvent:
    """The whole content of an event. Categories by id, coins by slug, impact from 0 to 10."""

    id: str
    slug: str
    title: str
    description: str | None
    displayed_date: str
    date: datetime
    date_end: datetime | None
    date_type: str
    is_estimated: bool
    categories: tuple[str, ...]
    coins: tuple[str, ...]
    impact: float | None
    impact_summary: str | None
    source_url: str | None
    snapshot_url: str | None
    last_verified_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an event; it has several kinds when they happened together."""

    at: datetime
    event_id: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an event. If it is not scheduled, `event` is its last content."""

    known_from: datetime
    known_to: datetime | None
    status: str
    event: TrueEvent
    kinds: tuple[str, ...]


class World:
    """The synthetic catalog of a seed. `pace` multiplies the changes of events, not the events.

    Raises:
        ValueError: `pace` is negative or not a number; later, a time without a timezone.
    """

    categories = CATEGORIES

    def __init__(self, seed: int = 1, *, pace: float = 1.0) -> None:
        if not 0 <= pace <= 100:
            raise ValueError(f"pace is {pace!r}; expected a number from 0 (no changes) to 100")
        self.seed = seed
        self.pace = pace
        self._months: dict[int, dict[str, Life]] = {}
        self._on_day: defaultdict[int, list[tuple[int, str, tuple[str, ...]]]] = defaultdict(list)
        self._contents: dict[str, tuple[int, TrueEvent]] = {}
        self._lock = RLock()
        self._coins_on = lru_cache(maxsize=8)(self._sync_coins)
        self._roster = lru_cache(maxsize=1)(lambda: Roster(seed))

    @pause_garbage_collector()
    def changes(self, after: datetime, until: datetime) -> list[Change]:
        """Return the changes after one time until another (inclusive), by time and id."""
        first, last = max(to_seconds(after) + 1, month_start_s(0)), to_seconds(until)
        if first > last:
            return []
        for month in range(max(find_month(first - LIFE_DAYS * DAY_S), 0), find_month(last) + 1):
            self._month(month)
        return [
            Change(to_datetime(at), event_id, kinds)
            for day in range(first // DAY_S, last // DAY_S + 1)
            for at, event_id, kinds in sorted(self._on_day.get(day, ()))
            if first <= at <= last
        ]

    def event_at(self, event_id: str, instant: datetime) -> TrueEvent | None:
        """Return an event as it was; None when unknown, unannounced, cancelled, withdrawn."""
        known = self.history(event_id, instant)
        return known[-1].event if known and known[-1].status == SCHEDULED else None

    def status_at(self, event_id: str, instant: datetime) -> str | None:
        """Return scheduled, cancelled or withdrawn; None when unknown or not yet announced."""
        known = self.history(event_id, instant)
        return known[-1].status if known else None

    def cancelled_at(self, event_id: str, instant: datetime) -> datetime | None:
        """Return when an event was cancelled; None when it is not, as of the time."""
        known = self.history(event_id, instant)
        return known[-1].known_from if known and known[-1].status == CANCELLED else None

    def history(self, event_id: str, until: datetime) -> tuple[Version, ...]:
        """Return the versions of an event up to a time; the last is open (`known_to` None)."""
        seconds = to_seconds(until)
        try:
            month = _decode_month(event_id)
        except ValueError:
            return ()
        life = self._month(month).get(event_id) if 0 <= month <= find_month(seconds) else None
        if life is None:
            return ()
        known = life[: find_index(life, seconds) + 1]
        starts = [to_datetime(moment.at) for moment in known]
        ends = [*starts[1:], None]
        return tuple(
            Version(starts[i], ends[i], moment.status, _event(life, i), moment.kinds)
            for i, moment in enumerate(known)
        )

    @pause_garbage_collector()
    def events_at(self, instant: datetime) -> dict[str, TrueEvent]:
        """Return the scheduled events by id, in the order of their announcement."""
        seconds = to_seconds(instant)
        return {
            event_id: self._content(event_id, life, index)
            for event_id, life in self._lives(seconds)
            if (index := find_index(life, seconds)) >= 0 and life[index].status == SCHEDULED
        }

    @pause_garbage_collector()
    def cancellations_at(self, instant: datetime) -> list[tuple[datetime, str]]:
        """Return the time and id of each cancelled event, in that order."""
        seconds = to_seconds(instant)
        return sorted(
            (to_datetime(life[-1].at), event_id)
            for event_id, life in self._lives(seconds)
            if life[-1].at <= seconds and life[-1].status == CANCELLED
        )

    def coins_at(self, instant: datetime) -> tuple[TrueCoin, ...]:
        """Return the coins known on a day, by rank, the unranked last; they sync at 00:00 UTC."""
        return self._coins_on(to_seconds(instant) // DAY_S)

    def _sync_coins(self, day: int) -> tuple[TrueCoin, ...]:
        return tuple(
            TrueCoin(coin.slug, coin.symbol, coin.name, rank, coin.tracked_on(day), coin.icon_url)
            for coin, rank in self._roster().ranking(day)
        )

    def _lives(self, seconds: int) -> Iterator[tuple[str, Life]]:
        """Yield the lives that begin in the months until a time, in their order."""
        for month in range(find_month(seconds) + 1):
            yield from self._month(month).items()

    def _month(self, month: int) -> dict[str, Life]:
        """Return the lives that begin in a month, by the ids of their events."""
        with self._lock:
            if month not in self._months:
                found = generate_lives(month, self._roster(), self.pace)
                lives = {life[0].delta["id"]: life for life in found}
                for event_id, life in lives.items():
                    for at, kinds, _, _ in life:
                        self._on_day[at // DAY_S].append((at, event_id, kinds))
                self._months[month] = lives
            return self._months[month]

    def _content(self, event_id: str, life: Life, index: int) -> TrueEvent:
        """Return the content after the change at an index; the last result per event is cached."""
        known = self._contents.get(event_id)
        if known is None or known[0] != index:
            known = self._contents[event_id] = (index, _event(life, index))
        return known[1]


def _event(life: Life, index: int) -> TrueEvent:
    content: dict[str, Any] = {**read_content(life, index)}
    for name in _TIMES:
        content[name] = None if content[name] is None else to_datetime(content[name])
    return TrueEvent(**content)


def find_index(life: Life, seconds: int) -> int:
    """Return the index of the last change at or before a time, -1 before the first change."""
    return bisect_right(life, seconds, key=attrgetter("at")) - 1


def read_content(life: Life, index: int) -> Content:
    """Return the complete content after the change at an index."""
    content = life[0].delta.copy()
    for moment in life[1 : index + 1]:
        content.update(moment.delta)
    return content


def to_datetime(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _decode_month(event_id: str) -> int:
    """Return the month that an id encodes; any number for an id from elsewhere.

    Raises:
        ValueError: The id is not hexadecimal.
    """
    return int(event_id[20:], 16) ^ (int(event_id[:10], 16) & 0xFFFF)


_shared_world = lru_cache(maxsize=2)(World)


def truth_of(sandbox: Sandbox) -> World:
    """Return the world of a sandbox's seed and pace, one for a process: making it takes seconds."""
    return _shared_world(sandbox.seed, pace=sandbox.pace)
