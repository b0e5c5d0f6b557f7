"""The history of an event that was moved, for the examples."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd

import almanac
from almanac.database import Database
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

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


def candles(frame: pd.DataFrame) -> pd.DataFrame:
    """Return bars as freqtrade hands them to a strategy."""
    date = pd.Series(frame.index.as_unit("ms"), name="date")
    return pd.concat([date, frame.reset_index(drop=True)], axis=1)
