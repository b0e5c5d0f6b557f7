"""The protocol of a store: a view of the catalog at a time.

The sandbox implements it over its synthetic world. A view never changes once made, so an export or
a page reads one state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from catalog.contract.constants import IMPACT_BANDS, IMPACT_MAJOR
from catalog.contract.parameters import SortBy
from catalog.contract.plans import Window

ChangeKind = Literal["events.created", "events.updated", "events.cancelled", "events.high-impact"]
DateKey = tuple[float, str]
"""Epoch seconds of the date, id: the order of the events list."""
ImpactKey = tuple[float, float, str]
"""Minus the impact, epoch seconds, id; an event without a score is last."""
CoinKey = tuple[int, str]
"""Rank (UNRANKED when there is none), slug: the order of the coins list."""
CancellationKey = tuple[float, str]
UNRANKED = 2**31


@dataclass(frozen=True, slots=True)
class StoredCoin:
    slug: str
    symbol: str
    name: str
    rank: int | None
    tracked: bool
    icon_url: str


@dataclass(frozen=True, slots=True)
class StoredCategory:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """All that is known of an event. Coins by slug, categories by id; None is unknown.

    Times are whole seconds: the interface has no finer ones (interface section 1).
    """

    id: str
    slug: str | None
    title: str
    description: str | None
    displayed_date: str
    date: datetime
    date_end: datetime | None
    date_type: str
    is_estimated: bool
    categories: tuple[str, ...] | None
    coins: tuple[str, ...]
    impact: float | None
    impact_summary: str | None
    source_url: str | None
    snapshot_url: str | None
    last_verified_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    impact_band: str | None = None
    """Where the score itself is unknown."""

    @property
    def is_major(self) -> bool:
        """Whether the score is 7.5 or more."""
        if self.impact is None:
            return self.impact_band == IMPACT_BANDS[-1][1]
        return self.impact >= IMPACT_MAJOR


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Filters, all combined with AND; None means no filter."""

    window: Window
    coins: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    keyword: str | None = None
    """Lower case. Searched in the title, and the description if `keyword_in_description`."""
    keyword_in_description: bool = True
    impact_min: float | None = None
    coverage_top: int | None = None
    """Only events with a coin whose rank is at most this."""
    order: SortBy = "date_asc"


@dataclass(frozen=True, slots=True)
class CoinQuery:
    q: str | None = None
    """Lower case."""
    tracked: bool | None = None
    coverage_top: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """A coin's upcoming events in a window: their number, the major ones, the highest impact."""

    upcoming: int
    major: int
    peak_impact: float | None


@dataclass(frozen=True, slots=True)
class EventSlice:
    """At most `limit` events after a key, whether more follow, and the total of all pages."""

    events: Sequence[StoredEvent]
    more: bool
    total: int


@dataclass(frozen=True, slots=True)
class CoinSlice:
    coins: Sequence[StoredCoin]
    more: bool
    total: int


@dataclass(frozen=True, slots=True)
class CancelledEntry:
    id: str
    cancelled_at: datetime


@dataclass(frozen=True, slots=True)
class CancellationSlice:
    entries: Sequence[CancelledEntry]
    more: bool
    total: int


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """An event was created, updated or cancelled; `event` is its content then.

    The change by which its score is 7.5 or more for the first time is a second one, high-impact.
    `version`: the version of the event with which the catalog learned of the change, at `at` and
    perhaps long after it; None if changes are reported as they happen.
    """

    at: datetime
    kind: ChangeKind
    event: StoredEvent
    cancelled_at: datetime | None = None
    version: int | None = None


class CatalogView(Protocol):
    """The catalog as it was at one time. Keys are exclusive: rows strictly after them."""

    def events(
        self, query: EventQuery, *, after: DateKey | ImpactKey | None, limit: int
    ) -> EventSlice: ...

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        """Yield every event of the query in order, lazily."""
        ...

    def event(self, event_id: str) -> StoredEvent | None: ...

    def cancelled_at(self, event_id: str) -> datetime | None: ...

    def cancellations(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice: ...

    def coins(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> CoinSlice: ...

    def coin(self, slug: str) -> StoredCoin | None: ...

    def counters(self, slug: str, window: Window, *, coverage_top: int | None) -> Counters: ...

    def categories(self) -> Sequence[StoredCategory]: ...


class CatalogStore(Protocol):
    """A catalog through time."""

    @property
    def identity(self) -> str:
        """A text that differs for any other catalog or state of it: part of the export's ETag."""
        ...

    def at(self, instant: datetime) -> CatalogView: ...

    def newest(self, instant: datetime) -> datetime:
        """Return the time, at or before `instant`, of the last look at the catalog."""
        ...

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        """Return the changes with `after < at <= until`, oldest first."""
        ...


class Clock(Protocol):
    """The service's time, aware UTC."""

    def now(self) -> datetime: ...


def date_key(event: StoredEvent) -> DateKey:
    return (event.date.timestamp(), event.id)


def impact_key(event: StoredEvent) -> ImpactKey:
    score = 1.0 if event.impact is None else -event.impact
    return (score, event.date.timestamp(), event.id)


def coin_key(coin: StoredCoin) -> CoinKey:
    return (UNRANKED if coin.rank is None else coin.rank, coin.slug)
