"""Of every example: what a bar shows never changes when later knowledge arrives.

A file as published at an instant, with the bars until then, gives what the last file gives for the
same bars. This is also what `freqtrade lookahead-analysis` tries: a frame cut off early.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from almanac.database import Database
from tests.almanac.frameworks.stories import (
    COINS,
    PULLS,
    bars,
    candles,
    opened,
    versions_at_random,
)
from tests.almanac.publications import publish_by_hand

Adapted = Callable[[SimpleNamespace, Database, pd.DataFrame], Any]
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
def last(published: dict[datetime, Path]) -> Iterator[Database]:
    with opened(published[PULLS[-1]], now=PULLS[-1] + timedelta(days=30)) as db:
        yield db


def closed(at: datetime) -> pd.DataFrame:
    return bars(until=at - BAR + timedelta(microseconds=1))


def of_freqtrade(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    pair = {"pair": "BTC/USDT:USDT"}
    return examples.freqtrade_features.add_features(candles(frame), pair, db, "4h")


def of_backtrader(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    return examples.backtrader_feed.with_lines(db, frame, "bitcoin", bar="4h")


def of_vectorbt(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    close = pd.DataFrame({"BTC": frame["close"], "ETH": frame["close"]})
    rule = examples.vectorbt_signals.next_open
    return rule(db, close, lambda known: known["days_until"] < 2, bar="4h")


def of_zipline(examples: SimpleNamespace, db: Database, frame: pd.DataFrame) -> Any:
    # Labels without a zone; a session knows what was known before its cutoff.
    sessions = frame.index.tz_localize(None)
    tables = examples.zipline_loaders.baselines(db, sessions, {1: "bitcoin", 2: "ethereum"})
    return pd.concat(tables, axis=1)


@pytest.mark.parametrize("adapted", [of_freqtrade, of_backtrader, of_vectorbt, of_zipline])
def test_a_bar_shows_the_same_in_a_file_published_later(
    examples: SimpleNamespace, published: dict[datetime, Path], last: Database, adapted: Adapted
) -> None:
    in_the_end = adapted(examples, last, bars())
    for at in CUTS:
        with opened(published[at], now=at) as db:
            known_then = adapted(examples, db, closed(at))
        pd.testing.assert_frame_equal(
            known_then, in_the_end.iloc[: len(known_then)], check_freq=False
        )
    early = adapted(examples, last, bars().iloc[:31])
    pd.testing.assert_frame_equal(early, in_the_end.iloc[:31], check_freq=False)


def test_a_replay_begins_with_all_that_a_file_published_earlier_has(
    examples: SimpleNamespace, published: dict[datetime, Path]
) -> None:
    records, coins = examples.nautilus_updates.records, frozenset({"bitcoin"})
    in_the_end = list(records(published[PULLS[-1]], PULLS[0], coins))
    for at in CUTS[1:]:
        known_then = list(records(published[at], PULLS[0], coins))
        assert known_then
        assert in_the_end[: len(known_then)] == known_then
