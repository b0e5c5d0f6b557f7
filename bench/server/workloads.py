"""The three workloads: distinct requests, drawn with a fixed seed, in no peer's form.

(a) a page of events, (b) one event, (c) a search of the coins.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeVar

from bench.server.peers.plain_rows import Key, PlainRows
from bench.server.peers.rows import Rows

PAGE_LIMIT = 50
_DRAW_SEED = 7
_FIRST_DAY = date(2017, 1, 1)
_DAYS = (date(2027, 6, 30) - _FIRST_DAY).days
_RANGE_DAYS = (1, 365)
_FILTERED_RANGE_DAYS = (30, 1_000)


@dataclass(frozen=True, slots=True)
class EventsPage:
    """Days `YYYY-MM-DD`, inclusive. At most one of coins and categories is given."""

    lower: str
    upper: str
    coins: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    after: Key | None = None
    limit: int = PAGE_LIMIT


@dataclass(frozen=True, slots=True)
class SingleEvent:
    id: str


@dataclass(frozen=True, slots=True)
class CoinSearch:
    """`q` is lower case."""

    q: str
    limit: int


WorkRequest = EventsPage | SingleEvent | CoinSearch
RequestT = TypeVar("RequestT", bound=WorkRequest)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    requests: Sequence[WorkRequest]


def workloads(rows: Rows, count: int) -> list[Workload]:
    """Return `count` distinct requests of each kind."""
    draw = random.Random(_DRAW_SEED)
    events, coins = rows.event_dicts(), rows.coin_dicts()
    plain = PlainRows(
        events, coins, category_ids=rows.category_ids, shown_events=events, shown_coins=coins
    )
    slugs = [coin["slug"] for event in events for coin in event["coins"]]
    categories = sorted(plain.by_category)
    ids = draw.sample([event["id"] for event in events], count)
    words = [text.casefold() for coin in coins for text in (coin["name"], coin["symbol"])]
    return [
        Workload("page of events", _pages(draw, count, plain, slugs, categories)),
        Workload("one event", [SingleEvent(event_id) for event_id in ids]),
        Workload("coin search", _distinct(count, lambda: _search(draw, words))),
    ]


def pages_of(loads: Sequence[Workload]) -> list[EventsPage]:
    return [
        request for load in loads for request in load.requests if isinstance(request, EventsPage)
    ]


def _pages(
    draw: random.Random,
    count: int,
    plain: PlainRows[dict[str, object]],
    slugs: Sequence[str],
    categories: Sequence[str],
) -> list[EventsPage]:
    """Half are plain ranges, 15 % with coins, 15 % with categories, 20 % second pages."""

    def draw_page() -> EventsPage:
        kind = draw.random()
        if kind < 0.50:
            return EventsPage(*_range(draw, _RANGE_DAYS))
        if kind < 0.65:
            coins = tuple(dict.fromkeys(draw.choices(slugs, k=draw.randint(1, 5))))
            return EventsPage(*_range(draw, _FILTERED_RANGE_DAYS), coins=coins)
        if kind < 0.80:
            tags = tuple(draw.sample(categories, k=draw.randint(1, 2)))
            return EventsPage(*_range(draw, _FILTERED_RANGE_DAYS), categories=tags)
        while True:
            lower, upper = _range(draw, _RANGE_DAYS)
            after = plain.page(lower, upper, limit=PAGE_LIMIT).after
            if after is not None:
                return EventsPage(lower, upper, after=after)

    return _distinct(count, draw_page)


def _range(draw: random.Random, days: tuple[int, int]) -> tuple[str, str]:
    lower = _FIRST_DAY + timedelta(days=draw.randint(0, _DAYS))
    return lower.isoformat(), (lower + timedelta(days=draw.randint(*days) - 1)).isoformat()


def _search(draw: random.Random, words: Sequence[str]) -> CoinSearch:
    word = draw.choice(words)
    begin = draw.randint(0, max(0, len(word) - 2))
    q = word[begin : begin + draw.randint(2, 5)].strip()
    return CoinSearch(q or word, draw.randint(10, 100))


def _distinct(count: int, make: Callable[[], RequestT]) -> list[RequestT]:
    found: dict[RequestT, None] = {}
    while len(found) < count:
        found[make()] = None
    return list(found)
