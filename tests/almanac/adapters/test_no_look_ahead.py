"""Of every adapter: what a bar shows never changes when later knowledge arrives.

A file as published at an instant, with the bars until then, gives what the last file gives for the
same bars. This is also what `freqtrade lookahead-analysis` tries: a frame cut off early.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from almanac.adapters import backtrader, freqtrade, nautilus, vectorbt, zipline
from almanac.database import Database
from tests.almanac.adapters.stories import (
    COINS,
    PULLS,
    bars,
    candles,
    opened,
    versions_at_random,
)
from tests.almanac.publications import publish_by_hand

Adapted = Callable[[Database, pd.DataFrame], Any]
BAR = timedelta(hours=4)
# Just before a pull, within a bar, and just after a pull.
CUTS = [
    PULLS[7] - timedelta(microseconds=1),
    PULLS[15] + timedelta(minutes=50),
    PULLS[24],
]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[datetime, Path]:
    """The same history as published at each cut, and in the end."""
    versions, absences = versions_at_random(5)
    folder = tmp_path_factory.mktemp("published")
    return {
        at: publish_by_hand(
            folder / f"{number}.duckdb",
            versions,
            absences=absences,
            pulls=PULLS,
            coins=COINS,
            at=at,
        )
        for number, at in enumerate([*CUTS, PULLS[-1]])
    }


@pytest.fixture(scope="module")
def in_the_end(last: Database) -> Callable[[Adapted], Any]:
    """What an adapter makes of the last file and every bar."""
    return cache(lambda adapted: adapted(last, bars()))


@pytest.fixture(scope="module")
def last(published: dict[datetime, Path]) -> Iterator[Database]:
    with opened(published[PULLS[-1]], now=PULLS[-1] + timedelta(days=30)) as db:
        yield db


def closed(at: datetime) -> pd.DataFrame:
    return bars(until=at - BAR + timedelta(microseconds=1))


def of_freqtrade(db: Database, frame: pd.DataFrame) -> Any:
    return freqtrade.add_features(candles(frame), {"pair": "BTC/USDT:USDT"}, db, "4h")


def of_backtrader(db: Database, frame: pd.DataFrame) -> Any:
    return backtrader.with_lines(db, frame, "ETH", bar=BAR, horizon="3d", min_impact=5)


def of_vectorbt(db: Database, frame: pd.DataFrame) -> Any:
    prices = pd.DataFrame({"BTC-USD": frame["open"], "ETH-USD": frame["open"]})
    return vectorbt.next_open(db, prices, lambda known: known["days_until"] < 2, bar=BAR)


def of_zipline(db: Database, frame: pd.DataFrame) -> Any:
    # Labels without a zone; a session knows what was known before its cutoff.
    sessions = frame.index.tz_localize(None)
    tables = zipline.baselines(db, sessions, {1: "bitcoin", 2: "ethereum"})
    return pd.concat(tables, axis=1)


@pytest.mark.parametrize("adapted", [of_freqtrade, of_backtrader, of_vectorbt, of_zipline])
@pytest.mark.parametrize("cut", range(len(CUTS)))
def test_a_bar_shows_the_same_in_a_file_published_later(
    published: dict[datetime, Path],
    in_the_end: Callable[[Adapted], Any],
    adapted: Adapted,
    cut: int,
) -> None:
    at = CUTS[cut]
    with opened(published[at], now=at) as db:
        known_then = adapted(db, closed(at))
    pd.testing.assert_frame_equal(
        known_then, in_the_end(adapted).iloc[: len(known_then)], check_freq=False
    )


@pytest.mark.parametrize("adapted", [of_freqtrade, of_backtrader, of_vectorbt, of_zipline])
def test_a_bar_shows_the_same_in_a_frame_that_ends_early_or_begins_late(
    last: Database, in_the_end: Callable[[Adapted], Any], adapted: Adapted
) -> None:
    every = in_the_end(adapted)
    early = adapted(last, bars().iloc[:31])
    pd.testing.assert_frame_equal(early, every.iloc[:31], check_freq=False)
    late = adapted(last, bars().iloc[20:])
    # The signal of the bar before is in the row of the next one, and is gone with its row.
    pd.testing.assert_frame_equal(
        late.iloc[1:].reset_index(drop=True),
        every.iloc[21:].reset_index(drop=True),
        check_freq=False,
    )


@pytest.mark.parametrize("coins", [None, "BTC"])
@pytest.mark.parametrize("cut", range(len(CUTS)))
def test_a_replay_begins_with_all_that_a_file_published_earlier_has(
    published: dict[datetime, Path], last: Database, cut: int, coins: str | None
) -> None:
    at = CUTS[cut]
    with opened(published[at], now=at) as db:
        known_then = nautilus.records(db, coins)
    assert known_then
    assert nautilus.records(last, coins)[: len(known_then)] == known_then
