"""Histories of events for the examples: one at random, and one of an event that was moved.

    with opened(publish_moved(path), now=LATER) as db: …

Belongs here: the versions, the pulls, opening a file as of an instant. Does not: what an example
makes of them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd

import almanac
from almanac.database import Database
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known

START = datetime(2026, 3, 1, tzinfo=UTC)
PULLS = [START + timedelta(hours=6 * number) for number in range(1, 33)]
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("ethereum", "ETH", "Ethereum", 2),
    NamedCoin("first-sun", "SUN", "First Sun", 40),
    NamedCoin("other-sun", "SUN", "Other Sun", 90),
    NamedCoin("galaxy", "GLX", "Gas", 99),
]
ANNOUNCED = datetime(2026, 5, 20, 6, tzinfo=UTC)
MOVED = datetime(2026, 6, 1, 6, tzinfo=UTC)
DATE_AT_FIRST = datetime(2026, 6, 10, tzinfo=UTC)
DATE_IN_THE_END = datetime(2026, 6, 24, tzinfo=UTC)
LATER = datetime(2026, 6, 30, tzinfo=UTC)
SESSIONS = pd.date_range("2026-05-18", "2026-06-26", freq="D")


def versions_at_random(seed: int) -> tuple[list[Known], list[Absence]]:
    """Return events that are moved, rescored, linked to another coin, cancelled, missing."""
    chance = random.Random(seed)
    versions, absences = [], []
    for number in range(24):
        name = f"event-{number:02}"
        times = sorted(chance.sample(PULLS, chance.randint(1, 5)))
        for version, known_from in enumerate(times, 1):
            days = timedelta(hours=chance.choice([0, 9, 24, 50, 72, 120, 200]))
            is_estimated = chance.random() < 0.2
            versions.append(
                Known(
                    event_id=name,
                    version=version,
                    known_from=known_from,
                    title=f"{name} {version}",
                    date=known_from + days,
                    date_type="month" if is_estimated else "date",
                    is_estimated=is_estimated,
                    status="cancelled" if version > 1 and chance.random() < 0.2 else "scheduled",
                    coins=tuple(chance.sample(["bitcoin", "ethereum"], chance.randint(1, 2))),
                    categories=("Release",),
                    impact=chance.choice([None, 2.0, 5.5, 8.0]),
                )
            )
        later = [pull for pull in PULLS if pull > times[-1]]
        if later and chance.random() < 0.4:
            since = later[0]
            absences.append(Absence(name, since, since))
            absences += [Absence(name, pull, None) for pull in later[3:4]]
    return versions, absences


def publish_moved(path: Path, *, at: datetime | None = None) -> Path:
    """Publish an event of 10 June, announced on 20 May, which was moved to 24 June on 1 June.

    With `at`, as it was published then.
    """
    first = Known(
        event_id="upgrade",
        known_from=ANNOUNCED,
        date=DATE_AT_FIRST,
        coins=("bitcoin",),
        impact=8.0,
    )
    moved = Known(
        event_id="upgrade",
        version=2,
        known_from=MOVED,
        date=DATE_IN_THE_END,
        coins=("bitcoin",),
        impact=8.0,
        change_kinds=("rescheduled",),
    )
    pulls = [ANNOUNCED + timedelta(days=number) for number in range(-2, 38)]
    return publish_by_hand(path, [first, moved], pulls=pulls, coins=COINS, at=at)


@contextmanager
def opened(path: Path, now: datetime) -> Iterator[Database]:
    with almanac.open(path, clock=lambda: now) as db:
        yield db


def bars(freq: str = "4h", *, until: datetime | None = None) -> pd.DataFrame:
    """Return prices from before the first pull on, indexed by the opens of the bars."""
    opens = pd.date_range(START - timedelta(days=1), PULLS[-1], freq=freq, inclusive="left")
    if until is not None:
        opens = opens[opens < until]
    price = pd.Series(range(100, 100 + len(opens)), index=opens, dtype="float64")
    return pd.DataFrame(
        {"open": price, "high": price + 2, "low": price - 1, "close": price + 1, "volume": 1.0}
    )


def candles(frame: pd.DataFrame) -> pd.DataFrame:
    """Return bars as freqtrade hands them to a strategy."""
    date = pd.Series(frame.index.as_unit("ms"), name="date")
    return pd.concat([date, frame.reset_index(drop=True)], axis=1)
