"""A published home with 60 events on 15 days, of which half move or are cancelled; prices for it.

The history goes through landing, merge and publication: deliveries at the instants at which each
fact became known. Belongs here: making the home, and prices of any seed with or without a jump.
Does not: a study.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from almanac.study.prices import Floats, Integers, Prices
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Pull, Scope

FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)
BARS, COINS, DAYS, EACH = 700, 40, 15, 4
DAY_US: Final = 86_400_000_000
_SOURCE = "bench"


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """An event with its day as known three days before, and what becomes of it."""

    event_id: str
    coin: int
    bar: int
    fate: str


def planned_events() -> list[PlannedEvent]:
    """Return 60 events on 15 days, and 20 that become known too late to enter.

    Of those on a day the first stays, the second moves to that day before entry, the third moves on
    by some weeks after entry, the fourth is cancelled after entry on every other day.
    """
    random = np.random.default_rng(14)
    days = np.sort(random.choice(np.arange(160, BARS - 60), DAYS, replace=False))
    found = []
    for number, day in enumerate(days):
        coins = random.permutation(COINS)[:EACH]
        fates = ("stays", "moved before", "moved after", ("cancelled after", "stays")[number % 2])
        for coin, fate in zip(coins, fates, strict=True):
            found.append(PlannedEvent(f"evt_{number}_{coin}", int(coin), int(day), fate))
    for number in range(20):
        day = int(random.integers(160, BARS - 60))
        found.append(PlannedEvent(f"evt_late_{number}", number, day, "known too late"))
    return found


def publish_home(root: Path) -> Home:
    """Land the deliveries of all events in the order in which they arrived, merge and publish."""
    home = Home(root)
    home.claim(_SOURCE)
    facts = [fact for event in planned_events() for fact in _facts(event)]
    by_time: dict[datetime, list[tuple[str, dict[str, Any]]]] = {}
    for at, kind, body in facts:
        by_time.setdefault(at, []).append((kind, body))
    for at in sorted(by_time):
        pull = Pull(
            feed="deliveries",
            scope=Scope(),
            plan="elite",
            source=_SOURCE,
            observed_at=at,
            content_at=at,
            landed_at=at,
            requests=0,
        )
        stamp = _stamp(at)
        bodies = [
            json.dumps(
                {"id": f"{kind}-{data['id']}", "type": kind, "createdAt": stamp, "data": data}
            )
            for kind, data in by_time[at]
        ]
        home.landing.land(pull, [(body.encode(), at) for body in bodies])
    merge(home)
    return home


def make_prices(
    seed: int,
    *,
    degrees: float,
    correlation: float,
    volatility: float,
    jump: float,
    bars_a_day: int = 1,
) -> tuple[Prices, Floats]:
    """Return prices without any effect but `jump` on each event's day as known at entry.

    Returns have a common factor (`correlation`), Student's t (`degrees`) and volatility clusters
    that all coins share, GARCH(1, 1) in the factor. With several bars a day, each return also takes
    back a tenth of the one before. The second is a market that has no factor.
    """
    random = np.random.default_rng(seed)
    bars, of_bar = BARS * bars_a_day, volatility / np.sqrt(bars_a_day)
    unit = np.sqrt((degrees - 2) / degrees)
    common = random.standard_t(degrees, bars) * unit
    own = random.standard_t(degrees, (bars, COINS)) * unit
    moves = np.sqrt(correlation) * common[:, None] + np.sqrt(1 - correlation) * own
    variance = np.ones(bars)
    for bar in range(1, bars):
        shock = min(variance[bar - 1] * common[bar - 1] ** 2, 25.0)
        variance[bar] = 0.05 + 0.15 * shock + 0.80 * variance[bar - 1]
    moves = of_bar * np.sqrt(variance)[:, None] * moves
    if bars_a_day > 1:
        moves[1:] -= 0.1 * moves[:-1]
    for event in planned_events():
        moves[event.bar * bars_a_day, event.coin] += jump * (event.fate != "known too late")
    bar_us = DAY_US // bars_a_day
    starts: Integers = int(FIRST.timestamp()) * 1_000_000 + np.arange(bars) * bar_us
    names = tuple(f"coin-{number}" for number in range(COINS))
    foreign = np.exp(np.cumsum(random.standard_normal(bars) * of_bar))
    return Prices(starts, bar_us, names, np.exp(np.cumsum(moves, axis=0)), None, {}), foreign


def _facts(event: PlannedEvent) -> list[tuple[datetime, str, dict[str, Any]]]:
    day = FIRST + timedelta(days=event.bar)
    announced = day - timedelta(days=40)
    if event.fate == "known too late":
        return [_fact(event, day - timedelta(days=1), day, "event.created")]
    if event.fate == "moved before":
        return [
            _fact(event, announced, day + timedelta(days=25), "event.created"),
            _fact(event, day - timedelta(days=10), day, "event.updated"),
        ]
    facts = [_fact(event, announced, day, "event.created")]
    if event.fate == "moved after":
        later = day + timedelta(days=30)
        facts.append(_fact(event, day - timedelta(hours=12), later, "event.updated"))
    if event.fate == "cancelled after":
        facts.append(_fact(event, day - timedelta(hours=12), day, "event.cancelled"))
    return facts


def _fact(
    event: PlannedEvent, at: datetime, date: datetime, kind: str
) -> tuple[datetime, str, dict[str, Any]]:
    coin = f"coin-{event.coin}"
    data = {
        **{"id": event.event_id, "slug": event.event_id, "title": f"Listing {event.event_id}"},
        **{"description": None, "displayedDate": f"{date:%d %b %Y}", "date": _stamp(date)},
        **{"dateEnd": None, "dateType": "date", "isEstimated": False, "categories": ["Listing"]},
        **{"coins": [{"slug": coin, "symbol": coin, "name": coin}], "impact": 6.5},
        **{"impactSummary": None, "sourceUrl": None, "snapshotUrl": None, "lastVerifiedAt": None},
        **{"createdAt": _stamp(at - timedelta(hours=1)), "updatedAt": _stamp(at)},
    }
    if kind == "event.cancelled":
        data["cancelledAt"] = _stamp(at)
    return at, kind, data


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
