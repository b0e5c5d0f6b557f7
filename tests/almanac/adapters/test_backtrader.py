"""backtrader: the lines of a bar are what was known when `next` runs, at its close."""

from datetime import datetime, timedelta

import pandas as pd
import pytest

from almanac.adapters.backtrader import with_lines
from almanac.database import Database
from almanac.errors import InvalidArgument
from tests.almanac.adapters.stories import ANNOUNCED

LINES = ["days_until", "events_ahead", "impact", "watched"]


def prices(start: datetime, count: int) -> pd.DataFrame:
    index = pd.date_range(start, periods=count, freq="1h")
    return pd.DataFrame({"Open": 1.0, "High": 2.0, "Low": 0.5, "Close": 1.5}, index=index)


def test_the_lines_of_a_bar_are_known_at_its_close(moved: Database) -> None:
    given = prices(ANNOUNCED - timedelta(hours=2), 3)
    found = with_lines(moved, given, "BTC/USDT", bar="1h", horizon="60d")
    assert found["events_ahead"].tolist() == [0, 1, 1]
    assert found["impact"].fillna(-1).tolist() == [-1, 8, 8]
    assert list(given.columns) == ["Open", "High", "Low", "Close"]


def test_bars_that_are_dated_by_their_close_are_known_at_their_date(moved: Database) -> None:
    given = prices(ANNOUNCED - timedelta(hours=2), 3)
    found = with_lines(moved, given, "BTC", bar="1h", dated_by="close", horizon="60d")
    assert found["events_ahead"].tolist() == [0, 0, 1]
    with pytest.raises(InvalidArgument, match="expected open, close"):
        with_lines(moved, given, "BTC", bar="1h", dated_by="middle")  # type: ignore[arg-type]


def test_lines_are_numbers_and_unknown_is_nan(moved: Database) -> None:
    long_before = prices(ANNOUNCED - timedelta(days=30), 2)
    found = with_lines(moved, long_before, moved.resolve("BTC"), bar="1h")
    assert (found[LINES].dtypes == "float64").all()
    assert found[["days_until", "events_ahead", "impact"]].isna().all(axis=None)
    assert found["watched"].tolist() == [0, 0]


def test_a_column_that_a_line_would_hide_is_refused(moved: Database) -> None:
    given = prices(ANNOUNCED, 2).assign(Impact=1.0)
    with pytest.raises(InvalidArgument, match="'impact' already; rename or drop it"):
        with_lines(moved, given, "BTC", bar="1h")
