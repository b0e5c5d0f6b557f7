"""freqtrade: the columns of a candle's row are what was known at the candle's close."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from almanac.adapters.freqtrade import add_features, length_of
from almanac.database import Database
from almanac.errors import InvalidArgument
from tests.almanac.adapters.stories import ANNOUNCED, MOVED, candles, opened, publish_moved

BTC = {"pair": "BTC/USDT"}


def frame(start: datetime, freq: str, count: int) -> pd.DataFrame:
    opens = pd.date_range(start, periods=count, freq=freq)
    price = pd.Series(1.0, index=opens)
    return candles(pd.DataFrame({"open": price, "close": price, "volume": 0.0}))


def test_a_candle_knows_what_was_known_when_it_closed(moved: Database) -> None:
    hours = frame(ANNOUNCED - timedelta(hours=3), "1h", 6)
    found = add_features(hours, BTC, moved, "1h", horizon="60d")
    # The candle of 05:00 closes at 06:00, when the event was announced.
    assert found["events_ahead"].tolist() == [0, 0, 1, 1, 1, 1]
    assert (found["known_at"] == found["date"] + timedelta(hours=1)).all()
    after = add_features(
        frame(MOVED - timedelta(hours=2), "1h", 3), BTC, moved, "1h", horizon="60d"
    )
    assert after["days_until"].tolist() == [9, 23, 23]


def test_the_frame_of_the_strategy_keeps_its_rows_and_columns(moved: Database) -> None:
    given = frame(ANNOUNCED, "1h", 5).set_axis([3, 5, 8, 9, 11], axis=0)
    before = given.copy(deep=True)
    found = add_features(given, BTC, moved, "1h")
    pd.testing.assert_frame_equal(given, before)
    pd.testing.assert_frame_equal(found[given.columns], before)
    assert list(found.columns[: len(given.columns)]) == list(given.columns)
    # A nullable number in a mask of a strategy is neither true nor false.
    assert found["events_ahead"].dtype == "float64"


def test_a_second_pair_has_its_prefix(moved: Database) -> None:
    once = add_features(frame(ANNOUNCED, "1h", 3), BTC, moved, "1h")
    with pytest.raises(InvalidArgument, match="'next_event_id' already; name another prefix"):
        add_features(once, {"pair": "ETH/USDT"}, moved, "1h")
    twice = add_features(once, {"pair": "ETH/USDT"}, moved, "1h", prefix="eth_", horizon="60d")
    assert twice["eth_events_ahead"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [1, 3])
def test_the_running_candle_of_a_month_is_that_of_a_week(tmp_path: Path, count: int) -> None:
    path = publish_moved(tmp_path / "warehouse.duckdb")
    with opened(path, now=datetime(2026, 7, 2, tzinfo=UTC)) as db:
        of_weeks = add_features(
            frame(datetime(2026, 7, 1, tzinfo=UTC) - timedelta(weeks=count - 1), "7D", count),
            BTC,
            db,
            "1w",
            horizon="60d",
        )
        begins = pd.Timestamp("2026-07-01", tz="UTC") - pd.DateOffset(months=count - 1)
        of_months = add_features(frame(begins, "MS", count), BTC, db, "1M", horizon="60d")
        running = of_months.iloc[-1]
        assert running["known_at"] == pd.Timestamp("2026-08-01", tz="UTC")
        same = [name for name in of_months.columns if name not in ("date", "known_at")]
        assert running[same].isna().tolist() == of_weeks.iloc[-1][same].isna().tolist()
        assert pd.isna(running["events_ahead"]) and pd.isna(running["days_until"])
        assert of_months.dtypes.tolist() == of_weeks.dtypes.tolist()
        with pytest.raises(InvalidArgument, match="still to come"):
            add_features(frame(begins, "MS", count + 2), BTC, db, "1M")


def test_a_month_closes_when_the_next_one_begins(moved: Database) -> None:
    months = frame(datetime(2026, 4, 1, tzinfo=UTC), "MS", 2)
    found = add_features(months, BTC, moved, "1M", horizon="60d")
    assert found["known_at"].tolist() == [
        pd.Timestamp("2026-05-01", tz="UTC"),
        pd.Timestamp("2026-06-01", tz="UTC"),
    ]
    # It was moved at 06:00 of 1 June, after the candle of May had closed.
    assert found["days_until"].iloc[1] == 9


def test_a_candle_that_has_not_closed_knows_nothing(tmp_path: Path) -> None:
    now = MOVED + timedelta(minutes=90)
    with opened(publish_moved(tmp_path / "then.duckdb", at=now), now=now) as live:
        found = add_features(frame(MOVED, "1h", 2), BTC, live, "1h", horizon="60d")
    assert found["days_until"].isna().tolist() == [False, True]


def test_a_timeframe_is_read_as_freqtrade_writes_it() -> None:
    assert length_of("5m") == (timedelta(minutes=5), 0)
    assert length_of("1d") == (timedelta(days=1), 0)
    assert length_of("2w") == (timedelta(weeks=2), 0)
    assert length_of("1M") == (timedelta(0), 1)
    assert length_of("1y") == (timedelta(0), 12)
    for wrong in ("", "0m", "h", "1 h", "5min", "1.5h"):
        with pytest.raises(InvalidArgument, match="expected one of freqtrade's"):
            length_of(wrong)


def test_a_timeframe_longer_than_the_candles_is_refused(moved: Database) -> None:
    with pytest.raises(InvalidArgument, match="after the next bar opened"):
        add_features(frame(ANNOUNCED, "1h", 3), BTC, moved, "4h")


def test_a_frame_without_dates_is_refused(moved: Database) -> None:
    with pytest.raises(InvalidArgument, match="no column 'date'"):
        add_features(pd.DataFrame({"close": [1.0]}), BTC, moved, "1h")


def test_a_pair_without_candles_has_the_columns(moved: Database) -> None:
    found = add_features(frame(ANNOUNCED, "1h", 0), BTC, moved, "1h")
    assert len(found) == 0
    assert "days_until" in found.columns
