"""vectorbt: a signal stands in the row at whose open it can be executed."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from almanac.adapters.vectorbt import next_open
from almanac.database import Database
from almanac.errors import InvalidArgument
from tests.almanac.adapters.stories import ANNOUNCED, opened, publish_moved


def prices(start: datetime, count: int, freq: str = "1h", **columns: float) -> pd.DataFrame:
    index = pd.date_range(start, periods=count, freq=freq)
    return pd.DataFrame({name: price for name, price in columns.items()}, index=index)


def is_announced(known: pd.DataFrame) -> Any:
    return known["events_ahead"] > 0


def test_a_signal_is_in_the_row_after_the_close_at_which_it_was_known(moved: Database) -> None:
    close = prices(ANNOUNCED - timedelta(hours=3), 6, BTC=1.0, ETH=2.0)
    entries = next_open(moved, close, is_announced, bar="1h", horizon="60d")
    # It became known at 06:00, the close of the bar of 05:00: the next open is that of 06:00.
    assert entries.index[entries["BTC"]][0] == ANNOUNCED
    assert not entries["ETH"].any()


def test_a_bar_that_is_absent_gives_no_signal_early(moved: Database) -> None:
    close = prices(ANNOUNCED - timedelta(hours=4), 9, BTC=1.0)
    gaps = close.drop(close.index[[3, 4]])
    entries = next_open(moved, gaps, is_announced, bar="1h", horizon="60d")
    # The bars of 05:00 and 06:00 are absent: the first close that knows is that of 07:00.
    assert entries.index[entries["BTC"]][0] == ANNOUNCED + timedelta(hours=2)


def test_a_row_of_now_takes_its_signal_from_the_bar_before(tmp_path: Path) -> None:
    close = prices(ANNOUNCED, 4, BTC=1.0)
    now = close.index[-1].to_pydatetime()
    with opened(publish_moved(tmp_path / "then.duckdb", at=now), now=now) as live:
        entries = next_open(live, close, is_announced, bar="1h", horizon="60d")
    assert entries["BTC"].tolist() == [False, True, True, True]


def test_index_columns_and_type_are_those_that_from_signals_takes(moved: Database) -> None:
    close = prices(ANNOUNCED, 4, BTC=1.0, ETH=2.0).tz_localize(None)
    close.columns = pd.MultiIndex.from_tuples([("x", 1), ("x", 2)], names=["set", "number"])
    coins = {("x", 1): "bitcoin", ("x", 2): "ethereum"}
    exits = next_open(moved, close, lambda k: k["days_until"].isna(), bar="1h", coins=coins)
    assert exits.index.equals(close.index)
    assert exits.columns.equals(close.columns)
    assert (exits.dtypes == "bool").all()
    assert exits.iloc[:, 1].tolist() == [False, True, True, True]


def test_a_frame_without_columns_has_no_signals(moved: Database) -> None:
    close = prices(ANNOUNCED, 2)
    assert next_open(moved, close, is_announced, bar="1h").shape == (2, 0)


def test_a_rule_may_return_an_array_or_nullable_booleans(moved: Database) -> None:
    close = prices(ANNOUNCED, 3, BTC=1.0)
    for rule in (
        lambda known: (known["events_ahead"] > 0).to_numpy(),
        lambda known: known["events_ahead"].astype("Int64") > 0,
    ):
        entries = next_open(moved, close, rule, bar="1h", horizon="60d")
        assert entries["BTC"].tolist() == [False, True, True]


def test_what_is_unknown_is_no_signal(moved: Database) -> None:
    long_before = prices(ANNOUNCED - timedelta(days=30), 3, BTC=1.0)
    signals = next_open(
        moved, long_before, lambda k: k["events_ahead"].astype("Int64") == 0, bar="1h"
    )
    assert not signals["BTC"].any()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda known: known["days_until"], "expected booleans"),
        (lambda known: is_announced(known).iloc[1:], "2 rows of another index"),
        (lambda known: is_announced(known).reset_index(drop=True), "of another index"),
    ],
)
def test_a_rule_that_returns_anything_else_is_refused(
    moved: Database, rule: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        next_open(moved, prices(ANNOUNCED, 3, BTC=1.0), rule, bar="1h")


def test_a_series_of_prices_is_refused_since_it_names_no_coin(moved: Database) -> None:
    with pytest.raises(InvalidArgument, match="to_frame"):
        next_open(moved, prices(ANNOUNCED, 3, BTC=1.0)["BTC"], is_announced, bar="1h")
