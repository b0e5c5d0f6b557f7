"""The two layouts of prices, and tickers that look like price fields."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac.core.errors import InvalidArgument
from almanac.study.prices import read_prices

DAYS = pd.date_range("2026-01-01", periods=40, freq="D", tz="UTC")
ODD = ["TIME", "DATE", "NA", "null", "NONE", "NaN", "TRUE", "INF", "1E5"]


def closes(coins: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
    moves = np.random.default_rng(3).normal(0, 0.02, (len(DAYS), coins))
    found: np.ndarray[Any, np.dtype[np.float64]] = 10 * np.exp(moves.cumsum(axis=0))
    return found


CLOSE = closes()[:, 0]


def bars() -> pd.DataFrame:
    opened = np.append(9.9, CLOSE[:-1])
    frame = pd.DataFrame({"open": opened, "high": 99.0, "low": 1.0, "close": CLOSE}, index=DAYS)
    return frame.assign(volume=1e6)


@pytest.mark.parametrize("prices", [bars(), bars()[["close"]], bars()["close"]])
def test_bars_of_one_coin_are_refused_with_the_column_to_add(prices: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"assign\(coin='slug:bitcoin'\)"):
        read_prices(prices)


def test_bars_with_a_coin_are_the_long_layout() -> None:
    found = read_prices(bars().assign(coin="slug:bitcoin"))
    assert found.coins == ("slug:bitcoin",)
    assert found.open is not None
    np.testing.assert_allclose(found.close[:, 0], CLOSE)
    np.testing.assert_allclose(found.open[:, 0], bars()["open"])


@given(
    field=st.sampled_from(
        ["open", "HIGH", "Low", "CLOSE", "Adj Close", "volume", "VWAP", "bid", "ASK", "Mid"]
    ),
    others=st.lists(st.sampled_from(["BTC", "ETH", "HIGHER", "time"]), unique=True),
)
def test_a_field_is_never_a_coin_by_its_name_alone(field: str, others: list[str]) -> None:
    frame = pd.DataFrame(closes(len(others) + 1), index=DAYS, columns=[field, *others])
    with pytest.raises(InvalidArgument, match="coins="):
        read_prices(frame)


@pytest.mark.parametrize(
    "coins", [{"HIGH": "highstreet", "OPEN": "open-campus"}, ["HIGH", "OPEN", "BTC"]]
)
def test_a_field_is_a_coin_if_the_call_says_so(coins: Any) -> None:
    frame = pd.DataFrame(closes(3), index=DAYS, columns=["HIGH", "OPEN", "BTC"])
    assert read_prices(frame, coins=coins).coins == ("HIGH", "OPEN", "BTC")


def test_tickers_are_texts_and_no_keywords(tmp_path: Path) -> None:
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
        *(tmp_path / name for name in ("wide.csv", "long.csv", "wide.parquet", "long.parquet")),
    ):
        found = read_prices(prices)
        assert sorted(found.coins) == sorted(ODD)
        order = [found.coins.index(name) for name in ODD]
        np.testing.assert_allclose(found.close[:, order], wide.to_numpy())
    assert read_prices(tmp_path / "one.csv").coins == ("1E5",)


def test_texts_of_no_price_in_a_csv_are_missing_prices(tmp_path: Path) -> None:
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
def test_names_that_pandas_took_for_values_are_refused(label: Any) -> None:
    wide = pd.DataFrame(closes(2), index=DAYS, columns=pd.Index(["BTC", label], dtype=object))
    long = pd.DataFrame({"ts": DAYS, "coin": [label, *["BTC"] * 39], "close": CLOSE})
    for prices in (wide, long):
        with pytest.raises(InvalidArgument, match=r"keep_default_na|as texts"):
            read_prices(prices)


def test_a_file_of_another_kind_or_with_decimal_commas_is_refused_with_its_name(
    tmp_path: Path,
) -> None:
    text = "ts,BTC,ETH\n2026-03-01,1.5,1.25\n2026-03-02,2.5,2.0\n"
    cases: list[tuple[bytes, str]] = [
        (text.replace(",", ";").replace(".", ",").encode(), "column 'BTC' has numbers with a com"),
        (text.replace("2.5", '"1,002"').encode(), "column 'BTC' has numbers with a comma"),
    ]
    for data, message in cases:
        (tmp_path / "prices.csv").write_bytes(data)
        with pytest.raises(InvalidArgument, match=f"prices.csv:? {message}"):
            read_prices(tmp_path / "prices.csv")
