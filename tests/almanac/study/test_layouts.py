"""Prices as vendors lay them out: bars (OHLCV) of one coin, and tickers that look like fields."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almanac.errors import InvalidArgument
from almanac.study.prices import read_prices

DAYS = pd.date_range("2026-01-01", periods=40, freq="D", tz="UTC")
ODD = ["TIME", "DATE", "NA", "null", "NONE", "NaN", "TRUE", "INF", "1E5"]
MILLISECONDS = [int(day.timestamp() * 1_000) for day in DAYS]


def closes(coins: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
    moves = np.random.default_rng(3).normal(0, 0.02, (len(DAYS), coins))
    found: np.ndarray[Any, np.dtype[np.float64]] = 10 * np.exp(moves.cumsum(axis=0))
    return found


CLOSE = closes()[:, 0]
OPEN = np.append(9.9, CLOSE[:-1])


def bars() -> pd.DataFrame:
    high, low = np.maximum(OPEN, CLOSE) * 1.01, np.minimum(OPEN, CLOSE) * 0.99
    volume = np.full(len(DAYS), 1e6)
    return pd.DataFrame(
        {"open": OPEN, "high": high, "low": low, "close": CLOSE, "volume": volume}, index=DAYS
    )


def capitals(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns=str.capitalize)


def rows(more: int = 0) -> list[list[Any]]:
    return [
        [at, *values, *["7"] * more]
        for at, values in zip(MILLISECONDS, bars().to_numpy().tolist(), strict=True)
    ]


def with_column(name: str, values: Any) -> pd.DataFrame:
    frame = bars().reset_index(drop=True)
    frame.insert(0, name, values)
    return frame


def yahoo_levels() -> pd.DataFrame:
    frame = capitals(bars())
    return frame.set_axis(
        pd.MultiIndex.from_product([frame.columns, ["BTC"]], names=["Price", "Ticker"]), axis=1
    )


YAHOO = capitals(bars()).assign(**{"Adj Close": 1.0, "Dividends": 0.0}).rename_axis("Date")
LAYOUTS = {
    "yahoo": YAHOO,
    "yahoo, a reset index": YAHOO.reset_index(),
    "tradingview": with_column("time", [at // 1_000 for at in MILLISECONDS]).assign(
        **{"Volume MA": 3.0, "RSI": 50.0}
    ),
    "ccxt rows": rows(),
    "ccxt rows in a frame": pd.DataFrame(rows()),
    "ccxt frame": with_column("timestamp", MILLISECONDS),
    "binance rows": rows(more=6),
    "texts": pd.DataFrame(rows())
    .astype(str)
    .set_axis(["start", *bars().columns], axis=1)
    .rename(columns={"start": "timestamp"}),
    "freqtrade": with_column("date", DAYS),
    "another order": with_column("date", DAYS)[["volume", "close", "date", "low", "open", "high"]],
    "polars": pl.from_pandas(with_column("timestamp", MILLISECONDS)),
    "arrow": pa.Table.from_pandas(with_column("Open Time", MILLISECONDS)),
    "close and volume": bars()[["close", "volume"]],
    "close alone": bars()[["close"]],
    "series": bars()["close"],
    "series without a name": bars()["close"].rename(None),
    "binance frame": with_column("Open time", MILLISECONDS).assign(
        **{
            "Close time": MILLISECONDS,
            "Number of trades": 7,
            "Quote asset volume": "1",
            "Ignore": 0,
        }
    ),
    "microseconds": with_column("open_time", [at * 1_000 for at in MILLISECONDS]),
    "nanoseconds": with_column("unix", [at * 1_000_000 for at in MILLISECONDS]),
    "an index and numbers": bars().assign(timestamp=MILLISECONDS),
    "coingecko": {
        "prices": [[at, price] for at, price in zip(MILLISECONDS, CLOSE, strict=True)],
        "market_caps": [],
    },
    "letters": bars().rename(columns=lambda name: name[0]),
    "capital letters": bars().rename(columns=lambda name: name[0].upper()).drop(columns="V"),
    "coingecko csv": pd.DataFrame(
        {"snapped_at": DAYS, "price": CLOSE, "market_cap": 1e9, "total_volume": 1e6}
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
class TestBarsOfOneCoin:
    def test_bars_that_name_no_coin_are_refused_with_the_argument(self, layout: str) -> None:
        with pytest.raises(InvalidArgument, match=r"of one coin.*coins='slug:bitcoin'"):
            read_prices(LAYOUTS[layout])

    def test_the_close_is_the_price_of_the_one_coin_that_the_call_names(self, layout: str) -> None:
        found = read_prices(LAYOUTS[layout], coins=["BTC"])
        assert found.coins == ("BTC",)
        np.testing.assert_allclose(found.close[:, 0], CLOSE)
        assert found.starts[0] == MILLISECONDS[0] * 1_000
        if found.open is not None:
            np.testing.assert_allclose(found.open[:, 0], OPEN)

    def test_several_coins_do_not_say_whose_bars_they_are(self, layout: str) -> None:
        with pytest.raises(InvalidArgument, match="the coin is not named"):
            read_prices(LAYOUTS[layout], coins=["BTC", "HIGH"])


class TestSeveralCoins:
    def test_levels_of_yahoo_are_fields_and_coins_in_any_order(self, tmp_path: Path) -> None:
        two = pd.concat(
            {coin: capitals(bars()) * scale for coin, scale in (("BTC-USD", 1), ("ETH-USD", 2))},
            axis=1,
        ).rename_axis("Date")
        by_field = two.swaplevel(axis=1).sort_index(axis=1)
        by_field.to_csv(tmp_path / "yahoo.csv")
        text = (tmp_path / "yahoo.csv").read_text()
        header = text.splitlines()
        named = ["Price" + header[0], "Ticker" + header[1], *header[2:]]
        (tmp_path / "yahoo.csv").write_text("\n".join(named))
        for prices in (two, by_field, by_field.reset_index(), str(tmp_path / "yahoo.csv")):
            found = read_prices(prices)
            assert found.coins == ("BTC-USD", "ETH-USD")
            np.testing.assert_allclose(found.close, np.stack([CLOSE, 2 * CLOSE], axis=1))
            assert found.open is not None
            np.testing.assert_allclose(found.open, np.stack([OPEN, 2 * OPEN], axis=1))

    def test_a_mapping_has_the_bars_of_each_coin(self) -> None:
        found = read_prices({"BTC/USDT": rows(), "HIGH": capitals(bars()).iloc[5:]})
        assert found.coins == ("BTC/USDT", "HIGH")
        assert np.isnan(found.close[:5, 1]).all()
        np.testing.assert_allclose(found.close[5:, 1], CLOSE[5:])

    def test_coins_may_be_in_the_index(self) -> None:
        frame = pd.DataFrame(closes(2), index=DAYS, columns=["BTC", "ETH"])
        stacked = frame.rename_axis("ts").rename_axis("coin", axis=1).stack().to_frame("close")
        np.testing.assert_allclose(read_prices(stacked).close, frame.to_numpy())

    def test_two_columns_of_one_name_are_refused(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(closes(2), index=DAYS, columns=["BTC", "BTC"]).rename_axis("ts")
        frame.to_csv(tmp_path / "twice.csv")
        with pytest.raises(InvalidArgument, match="two columns called 'BTC'"):
            read_prices(tmp_path / "twice.csv")

    @pytest.mark.parametrize("price", ["close", "Close", "CLOSE", "Adj Close", "price"])
    def test_a_long_frame_has_a_coin_in_each_row(self, price: str) -> None:
        frame = capitals(bars()).drop(columns="Close").assign(**{price: CLOSE, "Symbol": "BTCUSDT"})
        found = read_prices(frame.rename_axis("ts").reset_index())
        assert found.coins == ("BTCUSDT",)
        np.testing.assert_allclose(found.close[:, 0], CLOSE)


class TestTickersThatLookLikeFields:
    @settings(deadline=None)
    @given(
        field=st.sampled_from(
            ["open", "HIGH", "Low", "CLOSE", "Adj Close", "volume", "VWAP", "bid", "ASK", "Mid"]
        ),
        others=st.lists(st.sampled_from(["BTC", "ETH", "HIGHER", "time"]), unique=True),
    )
    def test_a_field_is_never_a_coin_by_its_name_alone(self, field: str, others: list[str]) -> None:
        frame = pd.DataFrame(closes(len(others) + 1), index=DAYS, columns=[field, *others])
        with pytest.raises(InvalidArgument, match="coins="):
            read_prices(frame)

    @pytest.mark.parametrize(
        "coins", [{"HIGH": "highstreet", "OPEN": "open-campus"}, ["HIGH", "OPEN", "BTC"]]
    )
    def test_it_is_one_if_the_call_says_so(self, coins: Any) -> None:
        frame = pd.DataFrame(closes(3), index=DAYS, columns=["HIGH", "OPEN", "BTC"])
        assert read_prices(frame, coins=coins).coins == ("HIGH", "OPEN", "BTC")

    def test_letters_are_coins_if_a_mapping_says_so(self) -> None:
        frame = pd.DataFrame(closes(4), index=DAYS, columns=list("OHLC"))
        coins = {"O": "openx", "H": "high", "L": "low", "C": "close-coin"}
        assert read_prices(frame, coins=coins).coins == ("O", "H", "L", "C")

    def test_bars_of_a_coin_called_high_are_its_close(self) -> None:
        found = read_prices(capitals(bars()), coins="High")
        np.testing.assert_allclose(found.close[:, 0], CLOSE)
        named = read_prices(bars(), coins={"close": "highstreet"})
        np.testing.assert_allclose(named.close[:, 0], CLOSE)
        assert named.coins == ("close",)

    def test_tickers_are_texts_and_no_keywords(self, tmp_path: Path) -> None:
        wide = pd.DataFrame(closes(len(ODD)), index=DAYS, columns=ODD)
        long = wide.rename_axis("ts").reset_index().melt("ts", var_name="coin", value_name="close")
        wide.rename_axis("ts").to_csv(tmp_path / "wide.csv")
        long.to_csv(tmp_path / "long.csv", index=False)
        long[long["coin"] == "1E5"].to_csv(tmp_path / "one.csv", index=False)
        wide.to_parquet(tmp_path / "wide.parquet")
        long.to_parquet(tmp_path / "long.parquet")
        for prices in (
            wide,
            long,
            pa.Table.from_pandas(long),
            pl.from_pandas(wide.rename_axis("ts").reset_index()),
            *(tmp_path / name for name in ("wide.csv", "long.csv")),
            *(tmp_path / name for name in ("wide.parquet", "long.parquet")),
        ):
            found = read_prices(prices)
            assert sorted(found.coins) == sorted(ODD)
            order = [found.coins.index(name) for name in ODD]
            np.testing.assert_allclose(found.close[:, order], wide.to_numpy())
        assert read_prices(tmp_path / "one.csv").coins == ("1E5",)

    def test_texts_of_no_price_in_a_csv_are_missing_prices(self, tmp_path: Path) -> None:
        lines = ["ts,coin,close"]
        texts = ["", "NA", "null", "None", "NaN", "n/a", "-"]
        lines += [f"{day.date()},NA,{text}" for day, text in zip(DAYS, texts, strict=False)]
        lines += [f"{day.date()},NA,1.5" for day in DAYS[len(texts) :]]
        (tmp_path / "long.csv").write_text("\n".join(lines))
        found = read_prices(tmp_path / "long.csv")
        assert found.coins == ("NA",)
        assert np.isnan(found.close[: len(texts), 0]).all()
        assert (found.close[len(texts) :, 0] == 1.5).all()

    @pytest.mark.parametrize("label", [float("nan"), None, True, 1e5])
    def test_names_that_pandas_took_for_values_are_refused(self, label: Any) -> None:
        wide = pd.DataFrame(closes(2), index=DAYS, columns=pd.Index(["BTC", label], dtype=object))
        long = pd.DataFrame({"ts": DAYS, "coin": [label, *["BTC"] * 39], "close": CLOSE})
        for prices in (wide, long):
            with pytest.raises(InvalidArgument, match=r"keep_default_na|as texts"):
                read_prices(prices)


class TestRows:
    @pytest.mark.parametrize(
        ("prices", "message"),
        [
            # Coinbase has low before high, and open before close.
            ([[row[0], row[3], row[2], row[1], row[4]] for row in rows()], "order"),
            ([row[1:] for row in rows()], "order"),
            ([row[:3] for row in rows()], "3 values"),
            (with_column("ts", range(40)), "timestamps are numbers"),
            (bars().assign(Close=1.0), "several columns of one field"),
            ({}, "no coins"),
        ],
    )
    def test_what_is_no_bar_is_refused(self, prices: Any, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            read_prices(prices, coins="BTC")
