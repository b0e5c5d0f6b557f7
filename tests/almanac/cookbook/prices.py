"""The prices of the notebook: random walks with a planted effect around listings.

    python -m tests.almanac.cookbook.prices > docs/prices.csv

One row per UTC day, one column per coin. A day moves with the market, and on its own, with fat
tails. A listing adds to it, by what the sandbox's world says: at its announcement, on the days
before a date that it keeps, when it moves to a later date, and when it is cancelled.
"""

import csv
import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Final, TextIO

import numpy as np

from catalog.sandbox.world.truth import Version
from catalog.sandbox.world.world import World

DAY: Final = timedelta(days=1)
FIRST: Final = datetime(2020, 12, 14, tzinfo=UTC)
LAST: Final = datetime(2021, 3, 23, tzinfo=UTC)
LISTED_FROM: Final = datetime(2021, 3, 1, tzinfo=UTC)
"""The coins are those of the listings that were expected for a day from here on."""
LARGE: Final = ("bitcoin", "ethereum", "ripple", "cardano", "chainlink", "litecoin")
SEED: Final = 14
ANNOUNCED, RUN_UP, LISTED, SLIPPED, CANCELLED = 0.08, 0.015, 0.02, -0.03, -0.08
"""What a listing adds to the log return of a day; the run-up to each of the three days before."""
RUN_UP_DAYS: Final = 3

_WORLD: Final = World(1)
_UNTIL: Final = LAST + DAY


@cache
def listings() -> list[tuple[Version, ...]]:
    """Return the histories of the listings that are in the catalog at any time of the prices."""
    changed = {change.event_id for change in _WORLD.changes(FIRST, _UNTIL)}
    histories = [
        _WORLD.history(event_id, _UNTIL)
        for event_id in sorted({*_WORLD.events_at(FIRST)} | changed)
    ]
    return [history for history in histories if any(map(_is_listing, history))]


def _is_listing(version: Version) -> bool:
    event = version.event
    return (
        version.status == "scheduled"
        and "exchange-listing" in event.categories
        and event.date >= FIRST
    )


def effects(history: tuple[Version, ...]) -> dict[datetime, float]:
    """Return what a listing adds to the log return of each UTC day."""
    added: dict[datetime, float] = {}

    def add(at: datetime, by: float) -> None:
        day = at.replace(hour=0, minute=0, second=0)
        added[day] = added.get(day, 0.0) + by

    add(history[0].event.created_at, ANNOUNCED)
    for before, after in pairwise(history):
        if after.status == "cancelled":
            add(after.known_from, CANCELLED)
        elif after.event.date > before.event.date:
            add(after.known_from, SLIPPED)
    last = history[-1]
    if last.status == "scheduled" and not last.event.is_estimated:
        date = last.event.date
        set_at = next(version.known_from for version in history if version.event.date == date)
        add(date, LISTED)
        for days in range(1, RUN_UP_DAYS + 1):
            if date - days * DAY >= set_at:
                add(date - days * DAY, RUN_UP)
    return added


def write(stream: TextIO) -> None:
    """Write the prices as CSV."""
    histories = listings()
    listed = {
        coin
        for history in histories
        for version in history
        if LISTED_FROM <= version.event.date < _UNTIL and not version.event.is_estimated
        for coin in version.event.coins
    }
    coins = [*LARGE, *sorted(listed - {*LARGE})]
    days = [FIRST + number * DAY for number in range((LAST - FIRST).days + 1)]
    random = np.random.default_rng(SEED)
    market = 0.001 + 0.02 * random.standard_t(4, len(days)) / 2**0.5
    beta = random.uniform(0.6, 1.4, len(coins))
    own = 0.025 * random.standard_t(4, (len(days), len(coins))) / 2**0.5
    returns = market[:, None] * beta + own
    for history in histories:
        for day, by in effects(history).items():
            for coin in {*history[-1].event.coins} & {*coins}:
                if FIRST <= day <= LAST:
                    returns[(day - FIRST).days, coins.index(coin)] += by
    start = random.uniform(0.2, 50, len(coins))
    prices = start * np.exp(np.cumsum(returns, axis=0))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["ts", *coins])
    for day, row in zip(days, prices, strict=True):
        writer.writerow([f"{day:%Y-%m-%d}", *(f"{price:.4g}" for price in row)])


if __name__ == "__main__":
    write(sys.stdout)
