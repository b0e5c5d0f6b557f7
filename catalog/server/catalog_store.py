"""The queries of a store and the rows of its answers, as values.

A store is one state of the history of a catalog: versions of events with the times at which they
became known, ranks of coins, categories and cancellations. The present is queried in the same way
as a past time. The sandbox and the mirror use the same store over different files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from catalog.contract.constants import IMPACT_BANDS, IMPACT_MAJOR
from catalog.contract.parameters import SortBy
from catalog.contract.plans import Window
from catalog.contract.records import Coin, EventCoin

RowT = TypeVar("RowT")
ChangeKind = Literal["events.created", "events.updated", "events.cancelled", "events.high-impact"]
DateKey = tuple[float, str]
"""Epoch seconds of the date, id: the order of the events list."""
ImpactKey = tuple[float, float, str]
"""Minus the impact, epoch seconds, id; an event without a score is last."""
CoinKey = tuple[int, str]
"""Rank (UNRANKED when there is none), slug: the order of the coins list."""
CancellationKey = tuple[float, str]
"""Epoch seconds of `cancelled_at`, id."""
UNRANKED = 2**31


class StoredEvent(msgspec.Struct, frozen=True):
    """All that is known of an event as of a time; None is unknown.

    Categories are names, and coins have the symbol and name of that time. Times are whole seconds:
    the interface has no finer ones (interface section 1).
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
    coins: tuple[EventCoin, ...]
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


class StoredVersion(msgspec.Struct, frozen=True):
    """A version of an event. `event` is None if the version has no date.

    `previous` is the version before, in the feed of changes alone.

    `seq` is its place in the feed. `changed` are the fields that differ from the version before, by
    the names of StoredEvent. `is_first_major`: no earlier version has a score of 7.5 or more.
    """

    seq: int
    event_id: str
    version: int
    known_from: datetime
    known_to: datetime | None
    status: str
    cancelled_at: datetime | None
    kinds: tuple[str, ...]
    changed: tuple[str, ...]
    is_first_major: bool
    event: StoredEvent | None
    previous: "StoredVersion | None" = None


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Filters as of `ts`, all combined with AND; None means no filter."""

    ts: datetime
    window: Window
    coins: frozenset[str] | None = None
    """Slugs."""
    categories: frozenset[str] | None = None
    """Ids."""
    keyword: str | None = None
    """Casefolded. Searched in the title, and the description if `keyword_in_description`."""
    keyword_in_description: bool = True
    impact_min: float | None = None
    coverage_top: int | None = None
    """Only events with a coin whose rank is at most this."""
    order: SortBy = "date_asc"


@dataclass(frozen=True, slots=True)
class CoinQuery:
    """`upcoming` is the window of the counters. `q` is casefolded."""

    ts: datetime
    upcoming: Window
    q: str | None = None
    tracked: bool | None = None
    coverage_top: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """Versions after a place of the feed, known at `until`.

    Up to the place `head`, versions that became known until `since` are left out.
    """

    until: datetime
    after: int = 0
    since: datetime | None = None
    head: int = 0


class StorePage(msgspec.Struct, Generic[RowT], frozen=True):
    """At most `limit` rows after a key, whether more follow, and the total of all pages."""

    rows: Sequence[RowT]
    more: bool
    total: int


@dataclass(frozen=True, slots=True)
class KnownSpan:
    """The times that a store can answer for, and its number of current events.

    `first` is the first pull of events, None if there was none. `last` is the last pull of any
    feed, and never before the last change.
    """

    first: datetime | None
    last: datetime | None
    events: int


class Clock(Protocol):
    """The service's time, aware UTC."""

    def now(self) -> datetime: ...


def date_key(event: StoredEvent) -> DateKey:
    return (event.date.timestamp(), event.id)


def impact_key(event: StoredEvent) -> ImpactKey:
    score = 1.0 if event.impact is None else -event.impact
    return (score, event.date.timestamp(), event.id)


def coin_key(coin: Coin) -> CoinKey:
    return (UNRANKED if coin.rank is None else coin.rank, coin.slug)
