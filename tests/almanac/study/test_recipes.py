"""The recipes of docs/backtests.md read responses in the shape of each price source."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from almanac.study.prices import read_prices
from tests.docs_page import blocks_of

PAGE = Path(__file__).parents[3] / "docs" / "backtests.md"
DAYS = pd.date_range("2026-02-01", periods=60, tz="UTC")
MS = [int(day.timestamp() * 1_000) for day in DAYS]
CLOSE = np.round(100 + np.arange(60) * 0.25, 2)
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    (code,) = [block.text for block in blocks_of(PAGE) if "def read_points" in block.text]
    names: dict[str, Any] = {"pd": pd}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def klines(close: Any) -> list[list[Any]]:
    """As of Binance: prices are texts."""
    rest = ("1250.00000000", 308, "6.2", "620.0", "0")
    texts = [[f"{c + off:.8f}" for off in (-0.1, 1, -1, 0)] for c in close]
    times = zip(MS, texts, strict=True)
    return [[ms, *prices, "12.50000000", ms + DAY_MS - 1, *rest] for ms, prices in times]


def market_chart(times: list[int], close: Any) -> dict[str, list[list[float]]]:
    """As of CoinGecko."""
    points = [[ms, float(c)] for ms, c in zip(times, close, strict=True)]
    return {"prices": points, "market_caps": points, "total_volumes": points}


def test_daily_points_of_coingecko_end_with_the_price_of_now(recipes: dict[str, Any]) -> None:
    parts = [
        recipes["read_points"](market_chart([*MS, MS[-1] + late], [*CLOSE, 1.0]), coin)
        for coin, late in (("bitcoin", 49_025_123), ("ethereum", 49_027_512))
    ]
    found = read_prices(pd.concat(parts), stamp="end")
    assert found.coins == ("bitcoin", "ethereum")
    assert found.starts[0] == (MS[0] - DAY_MS) * 1_000 and len(found.starts) == 60
    np.testing.assert_array_equal(found.close, np.column_stack([CLOSE, CLOSE]))


def test_hourly_points_of_coingecko_are_rounded(recipes: dict[str, Any]) -> None:
    times = [MS[0] + 3_600_000 * n + 1_000 * (7 * n % 240) for n in range(60)]
    chart = market_chart([*times, times[-1] + 900_000], [*CLOSE, 1.0])
    found = read_prices(recipes["read_points"](chart, "bitcoin", bar="h"), stamp="end")
    assert found.bar_us == 3_600_000_000
    np.testing.assert_array_equal(found.close[:, 0], CLOSE)


def test_candles_of_binance_and_ccxt(recipes: dict[str, Any]) -> None:
    candles = [[ms, c - 0.1, c + 1, c - 1, c, 12.5] for ms, c in zip(MS, CLOSE, strict=True)]
    frames = [recipes["read_candles"](rows, "BTC/USDT") for rows in (klines(CLOSE), candles)]
    for frame in frames:
        found = read_prices(frame, now=DAYS[-1].to_pydatetime() + pd.Timedelta(hours=7))
        assert found.counts["partial_bars"] == 1  # The last candle is still open.
        assert found.open is not None
        np.testing.assert_allclose(found.close[:, 0], CLOSE[:-1])
        np.testing.assert_allclose(found.open[:, 0], CLOSE[:-1] - 0.1)


@pytest.mark.parametrize("field", ["Close", "Adj Close"])
def test_a_field_of_yahoo_is_the_wide_layout(field: str) -> None:
    columns = pd.MultiIndex.from_product(
        [["Adj Close", "Close", "High", "Low", "Open", "Volume"], ["BTC-USD", "ETH-USD"]],
        names=["Price", "Ticker"],
    )
    days = DAYS.tz_localize(None).rename("Date")
    downloaded = pd.DataFrame(1.0, days, columns)
    downloaded[field] = np.column_stack([CLOSE, CLOSE * 2])
    found = read_prices(downloaded[field])
    assert found.coins == ("BTC-USD", "ETH-USD")
    np.testing.assert_array_equal(found.close, np.column_stack([CLOSE, CLOSE * 2]))
