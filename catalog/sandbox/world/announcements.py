"""The events announced in a month, as first published: how many, coins, dates, texts, ids.

A month is a pure function of the seed and its number. `wording.json` has the texts: titles by
category, descriptions, impact summaries. Words of WORDS fill their `{…}` slots. Every address is in
a domain reserved for examples. Does not belong here: later changes (lifecycle.py).
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TypedDict

from catalog.sandbox.world.categories import WEIGHTED, EditorialCategory
from catalog.sandbox.world.dates import (
    DAY_S,
    FIRST_EVENT_DAY,
    Dating,
    make_estimated_dating,
    make_exact_dating,
    month_start_s,
)
from catalog.sandbox.world.roster import ListedCoin

Draw = Callable[[], float]
"""Returns a uniform number in [0, 1)."""

_TEXTS = json.loads(Path(__file__).with_name("wording.json").read_text("utf-8"))
TITLES: dict[str, list[str]] = _TEXTS["titles"]
"""The titles of each category."""
WORDS: dict[str, list[str]] = {slot: words.split(",") for slot, words in _TEXTS["words"].items()}
"""The choices for each slot of a text."""
WORDS["block"] = [str(240_000 + 7_919 * step) for step in range(60)]
_LEADS: list[str] = _TEXTS["leads"]
_MIDDLES: list[str] = _TEXTS["middles"]
_CLOSINGS: list[str] = _TEXTS["closings"]
_SUMMARIES: list[str] = _TEXTS["summaries"]
_BREAKS = (" ", " ", " ", "\n\n", "\n")
_SITES = ("news.example", "blog.example", "forum.example", "social.example", "press.example")
_NOT_URL_SAFE = re.compile(r"[^a-z0-9]+")


class Slots(dict[str, str]):
    """Fills the slots of one event's text: the coin, its symbol, words drawn when needed."""

    def __init__(self, r: Draw, coin: ListedCoin) -> None:
        self["coin"] = coin.name
        self["symbol"] = coin.symbol.upper()
        self.r = r

    def __missing__(self, slot: str) -> str:
        words = WORDS[slot]
        return words[int(self.r() * len(words))]


def draw_title(r: Draw, slots: Slots, category_id: str) -> str:
    titles = TITLES[category_id]
    return titles[int(r() * len(titles))].format_map(slots)


def draw_description(r: Draw, slots: Slots, title: str) -> str | None:
    """Return one to four sentences, often on several lines; None for one event in eight."""
    length = r()
    if length < 0.125:
        return None
    slots["title"] = title
    text = _LEADS[int(r() * len(_LEADS))]
    if length > 0.3:
        text += _BREAKS[int(r() * len(_BREAKS))] + _MIDDLES[int(r() * len(_MIDDLES))]
    if length > 0.65:
        text += _BREAKS[int(r() * len(_BREAKS))] + _CLOSINGS[int(r() * len(_CLOSINGS))]
    return text.format_map(slots)


def draw_impact_summary(r: Draw, slots: Slots) -> str | None:
    """Return why the event may matter; None for one event in five."""
    if r() < 0.2:
        return None
    return _SUMMARIES[int(r() * len(_SUMMARIES))].format_map(slots)


def draw_source_url(r: Draw, coin: ListedCoin) -> str | None:
    """Return the address of an announcement; None for one event in twenty."""
    if r() < 0.05:
        return None
    site = _SITES[int(r() * len(_SITES))]
    return f"https://{site}/{coin.slug}/{int(r() * 10_000_000)}"


def draw_snapshot_url(r: Draw, event_id: str) -> str | None:
    """Return the address of a picture of the announcement; None for one event in ten."""
    return f"https://snapshots.example/{event_id}/{int(r() * 1000)}.png" if r() > 0.1 else None


def make_slug(title: str, event_id: str) -> str:
    """Return the title made URL-safe, with the first six digits of the id."""
    return f"{_url_safe(title)}-{event_id[:6]}"


@lru_cache(maxsize=8192)
def _url_safe(title: str) -> str:
    return _NOT_URL_SAFE.sub("-", title.lower()).strip("-") or "event"


FIRST_RATE_PER_DAY = 2.9
LAST_RATE_PER_DAY = 28.0
MONTHS_OF_GROWTH = 118
HORIZON_DAYS = 729
"""The last day an event may lie on, from the day of its announcement: two years at most."""
MULTI_DAY_SHARE = 0.085
MAX_SPAN_DAYS = 60
MAX_COINS = 8
UNSCORED_SHARE = 0.03
PERIODS = ("date", "date", "month", "month", "month", "quarter", "quarter", "quarter", "year")
"""Date types of estimated events, each as often as it is used."""
_HOURS = (6, 8, 9, 10, 12, 12, 13, 14, 14, 15, 16, 17, 18, 20)
_ID_HALF = 1 << 40


class Content(TypedDict, total=False):
    """The content of an event, or the part of it that changes; times in seconds since 1970."""

    id: str
    slug: str
    title: str
    description: str | None
    displayed_date: str
    date: int
    date_end: int | None
    date_type: str
    is_estimated: bool
    categories: tuple[str, ...]
    coins: tuple[str, ...]
    impact: float | None
    impact_summary: str | None
    source_url: str | None
    snapshot_url: str | None
    last_verified_at: int | None
    created_at: int
    updated_at: int


def generate_announcements(month: int, seed: int, coins: list[ListedCoin]) -> Iterator[Content]:
    """Yield the events announced in a numbered month, in the order of their announcement.

    `coins` are the coins tracked throughout the month, the higher ranked first.
    """
    r = Random(f"{seed}/{month}/announced").random
    start, end = month_start_s(month), month_start_s(month + 1)
    growth = min(month / MONTHS_OF_GROWTH, 1.0)
    per_day = FIRST_RATE_PER_DAY + (LAST_RATE_PER_DAY - FIRST_RATE_PER_DAY) * growth
    step = DAY_S / per_day
    for number in range(int((end - start) / step)):
        yield _event(r, month, int(start + (number + r()) * step), coins)


def _event_id(r: Draw, month: int) -> str:
    head, middle = int(r() * _ID_HALF), int(r() * _ID_HALF)
    return f"{head << 56 | middle << 16 | month ^ (head & 0xFFFF):024x}"


def _event(r: Draw, month: int, created_at: int, coins: list[ListedCoin]) -> Content:
    event_id = _event_id(r, month)
    category = WEIGHTED[int(r() * len(WEIGHTED))]
    coin = pick_coin(r, coins)
    slots = Slots(r, coin)
    title = draw_title(r, slots, category.id)
    impact = None if r() < UNSCORED_SHARE else _impact(r, category)
    return {
        "id": event_id,
        "slug": make_slug(title, event_id),
        "title": title,
        "description": draw_description(r, slots, title),
        **_dating(r, category, created_at // DAY_S),
        "categories": _categories(r, category),
        "coins": (coin.slug,) if r() < 0.88 else _coins(r, coin, coins),
        "impact": impact,
        "impact_summary": None if impact is None else draw_impact_summary(r, slots),
        "source_url": draw_source_url(r, coin),
        "snapshot_url": draw_snapshot_url(r, event_id),
        "last_verified_at": created_at if r() < 0.6 else None,
        "created_at": created_at,
        "updated_at": created_at,
    }


def pick_coin(r: Draw, coins: list[ListedCoin]) -> ListedCoin:
    """Return one of the coins, the first ones more often than the last."""
    place = r()
    return coins[int(place * place * place * len(coins))]


def draw_time_of_day_s(r: Draw) -> int:
    """Return a time of day in seconds: midnight for most, else a full or half hour."""
    if r() < 0.6:
        return 0
    return _HOURS[int(r() * len(_HOURS))] * 3600 + (1800 if r() < 0.2 else 0)


def draw_span_days(r: Draw) -> int:
    """Return how many days an event lasts beyond its first: 0 for most."""
    if r() >= MULTI_DAY_SHARE:
        return 0
    length = r()
    return 1 + int(length * length * length * MAX_SPAN_DAYS)


def _dating(r: Draw, category: EditorialCategory, today: int) -> Dating:
    shortest, longest = category.lead_days
    ahead = r()
    day = today + shortest + int(ahead * ahead * (longest - shortest))
    if day < FIRST_EVENT_DAY:
        day = FIRST_EVENT_DAY + int(ahead * 60)
    if r() < category.estimated:
        return make_estimated_dating(PERIODS[int(r() * len(PERIODS))], day, today + HORIZON_DAYS)
    return make_exact_dating(day * DAY_S + draw_time_of_day_s(r), draw_span_days(r))


def _categories(r: Draw, category: EditorialCategory) -> tuple[str, ...]:
    if r() < 0.85:
        return (category.id,)
    other = WEIGHTED[int(r() * len(WEIGHTED))]
    return (category.id,) if other is category else (category.id, other.id)


def _coins(r: Draw, first: ListedCoin, coins: list[ListedCoin]) -> tuple[str, ...]:
    more = r()
    count = 2 + int(more * more * (MAX_COINS - 1))
    linked = {first.slug: None}
    for _ in range(count - 1):
        linked[pick_coin(r, coins).slug] = None
    return tuple(linked)


def _impact(r: Draw, category: EditorialCategory) -> float:
    width = 20 + category.impact * 0.5
    tenths = category.impact + int((r() + r() + r() - 1.5) * width)
    return min(max(tenths, 0), 100) / 10
