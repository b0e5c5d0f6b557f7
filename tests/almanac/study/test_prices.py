"""Prices as users bring them: forms, gaps, late starts, delistings, bad values."""

import re
from datetime import UTC
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from almanac.core.errors import InvalidArgument
from almanac.study.prices import Prices, read_prices
from almanac.study.returns import compute_returns
from almanac.study.windows import Spans, make_study_rows

DAYS = pd.date_range("2026-01-01", periods=80, freq="D", tz="UTC")
HOUR = pd.Timedelta(hours=1)
SPANS = Spans(first=-1, last=2, estimation=30, gap=2, least=20)


def wide(coins: int = 4) -> pd.DataFrame:
    moves = np.random.default_rng(5).normal(0, 0.02, (len(DAYS), coins))
    names = [f"c{place}" for place in range(coins)]
    return pd.DataFrame(10 * np.exp(moves.cumsum(axis=0)), index=DAYS, columns=names)


def long(frame: pd.DataFrame) -> pd.DataFrame:
    found = frame.rename_axis("ts").reset_index().melt("ts", var_name="coin", value_name="close")
    return found.sample(frac=1.0, random_state=1)


def rows(**of_coin: int) -> pd.DataFrame:
    date = [DAYS[bar] for bar in of_coin.values()]
    coin = list(of_coin)
    frame = pd.DataFrame({"event_id": coin, "coin": coin, "title": coin, "date": date})
    frame["date"] = frame["date"].dt.as_unit("us")
    frame["entry"] = frame["date"] - pd.Timedelta(days=1)
    return frame.assign(column=[int(name[1:]) for name in coin])


def placed(frame: pd.DataFrame, events: pd.DataFrame, **more: Any) -> Any:
    prices = read_prices(frame)
    returns = compute_returns(prices, max_gap=2)
    return make_study_rows(prices, returns, events, SPANS, "market", from_entry=True)


def same(first: Prices, other: Prices) -> bool:
    np.testing.assert_array_equal(first.starts, other.starts)
    np.testing.assert_allclose(first.close, other.close)
    return first.coins == other.coins and first.bar_us == other.bar_us


class TestForms:
    def test_instants_without_a_zone_are_of_the_zone_of_the_database(self) -> None:
        naive = wide().tz_localize(None)
        assert same(read_prices(naive, tz=UTC), read_prices(wide()))

    def test_an_instant_that_clocks_show_twice_or_never_is_refused(self) -> None:
        hours = pd.date_range("2026-03-08", periods=12, freq="h")
        frame = pd.DataFrame({"c0": 1.0}, index=hours)
        with pytest.raises(InvalidArgument, match="twice or never"):
            read_prices(frame, tz=ZoneInfo("America/New_York"))

    def test_a_stamp_at_the_end_of_a_bar_is_moved_to_its_start(self) -> None:
        at_end = wide().set_axis(DAYS + pd.Timedelta(days=1), axis=0)
        assert same(read_prices(at_end, stamp="end"), read_prices(wide()))

    def test_rows_that_are_missing_are_bars_without_prices(self) -> None:
        frame = wide().drop(index=DAYS[[40, 41]])
        found = read_prices(frame)
        assert len(found.starts) == len(DAYS)
        assert np.isnan(found.close[[40, 41]]).all()
        assert found.counts["missing_prices"] == 8
        closed = read_prices(frame, bars="frame")
        assert len(closed.starts) == len(DAYS) - 2

    def test_prices_that_are_not_positive_are_missing_and_counted(self) -> None:
        frame = wide()
        frame.iloc[3, 0], frame.iloc[4, 1], frame.iloc[5, 2] = 0.0, -1.0, np.inf
        found = read_prices(frame)
        assert found.counts["bad_prices"] == 3
        assert np.isnan(found.close[3, 0])

    @pytest.mark.parametrize("layout", [lambda frame: frame, long], ids=["wide", "long"])
    def test_both_layouts_take_the_same_types(self, layout: Any) -> None:
        whole = wide().round(6)
        texts = whole.astype(str)
        for frame in (
            *(whole.astype(object), texts, texts.astype(object), texts.map(Decimal)),
            *(whole.set_axis([day.date() for day in DAYS]), whole.set_axis(DAYS.strftime("%F"))),
        ):
            assert same(read_prices(layout(frame)), read_prices(whole))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (wide().iloc[:0], "no rows"),
            (wide().iloc[:1], "one bar"),
            (pd.concat([wide(), wide().iloc[:1]]), "two rows"),
            (pd.concat([long(wide()), long(wide()).iloc[:1]]), "2 rows of"),
            (wide().set_axis(range(80), axis=0), "no timestamps"),
            (wide().assign(name="x"), "column 'name' .* row 0, at 2026-01-01.*'x', a str"),
            (wide().assign(c0=True), r"column 'c0' \(bool\) .* has True, a bool"),
            (long(wide()).assign(close=True), r"column 'close' \(bool\) .* has True, a bool"),
            (pd.concat([wide(), wide()[["c0"]]], axis=1), "has the column 'c0' 2 times"),
            (long(wide()).assign(CLOSE=1.0), "has the column 'close' 2 times"),
            (wide().pct_change(), "'c0' has .* not above 0, such as -.*expected prices"),
            (long(np.log(wide()).diff()), "not above 0, such as -.*expected prices"),
            (wide() * 0, "80 of 80 values that are not above 0, such as 0 at 2026-01-01"),
            (wide().set_axis([*DAYS[:-2], DAYS[-2] + HOUR * 5, DAYS[-1]], axis=0), "whole bars"),
            (
                wide().set_axis(
                    DAYS[:-1].append(pd.to_datetime([1_772_452_800_000], unit="s", utc=True))
                ),
                "years 1 to 9999: were milliseconds read as seconds",
            ),
            ("nowhere.csv", "no such file"),
            (42, "int"),
            (long(wide()).iloc[:0], "no rows"),
            (long(wide()).assign(close="abc"), "'close' .* values that are not numbers: row"),
            # The first of February, or the second of January.
            (
                wide().set_axis(DAYS.strftime("%d/%m/%Y")).iloc[:1].rename_axis("ts").reset_index(),
                "ISO 8601",
            ),
        ],
    )
    def test_what_can_not_be_read_is_an_error_that_says_why(self, given: Any, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            read_prices(given)


class TestLocalDays:
    """A year of New York: the day of 8 March has 23 hours, that of 1 November 25."""

    LOCAL = pd.date_range("2026-01-01", "2026-12-30", tz="America/New_York")
    FRAME = pd.DataFrame({"c0": np.arange(1.0, 365.0), "c1": 2.0}, LOCAL)
    STARTS = LOCAL.tz_convert(None).as_unit("us").astype(np.int64).to_numpy()

    @pytest.mark.parametrize(
        ("given", "options"),
        [
            (FRAME, {}),
            (FRAME, {"bar": "1d", "bars": "frame"}),
            (FRAME.tz_localize(None), {"tz": ZoneInfo("America/New_York")}),
            (FRAME.set_axis(LOCAL + pd.DateOffset(days=1)), {"stamp": "end", "bar": "1d"}),
            (long(FRAME), {}),
        ],
    )
    def test_each_is_a_bar(self, given: Any, options: Any) -> None:
        found = read_prices(given, **options)
        assert len(found.starts) == 364 and not np.isnan(found.close).any()
        assert found.starts.tolist() == self.STARTS.tolist()
        assert len(np.unique(compute_returns(found).day)) == 364

    def test_missing_days_are_bars_and_the_25th_hour_is_in_its_day(self) -> None:
        found = read_prices(self.FRAME.drop(index=self.LOCAL[[65, 66, 67, 200]]))
        assert len(found.starts) == 364 and np.isnan(found.close).sum() == 8
        assert found.starts[200] == self.STARTS[200]
        last_hour = int(pd.Timestamp("2026-11-02 04:30", tz="UTC").timestamp()) * 1_000_000
        assert found.find_bars(np.array([last_hour])).tolist() == [304]
        assert found.find_next_bars(np.array([last_hour])).tolist() == [305]

    def test_weeks_and_four_hours(self) -> None:
        assert len(read_prices(self.FRAME[::7], bar="1w").starts) == 52
        hours = pd.date_range("2026-03-01", "2026-11-30", freq="4h").tz_localize(self.LOCAL.tz)
        assert len(read_prices(pd.DataFrame({"c0": 1.0}, hours)).starts) == len(hours)

    def test_bars_of_half_the_length_and_a_shift_that_is_not_of_clocks_are_refused(self) -> None:
        halves = self.FRAME.set_axis(pd.date_range(DAYS[0], periods=364, freq="12h"))
        with pytest.raises(InvalidArgument, match="12:00:00 apart"):
            read_prices(halves, bar="1d")
        shifted = wide().set_axis([*DAYS[:9], DAYS[9] + HOUR, *DAYS[10:]])
        with pytest.raises(InvalidArgument, match="1 of 80 timestamps are not whole bars"):
            read_prices(shifted)


class TestLastPoints:
    """A source ends with the price of its query, at another time for each coin."""

    def points(self, layout: str) -> Any:
        parts = {}
        for name, days, time in (("c0", 80, "13:37:05"), ("c1", 77, "01:00:00")):
            now = pd.Series(99.0, [DAYS[days - 1] + pd.Timedelta(time)])
            parts[name] = pd.concat([wide()[name].iloc[:days], now])
        frame = pd.DataFrame(parts)
        return frame if layout == "wide" else long(frame).dropna()

    @pytest.mark.parametrize("layout", ["wide", "long"])
    @pytest.mark.parametrize("stamp", ["start", "end"])
    @pytest.mark.parametrize("bars", ["grid", "frame"])
    def test_each_is_left_out_and_counted(self, layout: str, stamp: Any, bars: Any) -> None:
        found = read_prices(self.points(layout), stamp=stamp, bars=bars, bar="1d")
        expected = wide()[["c0", "c1"]].copy()
        expected.iloc[77:, 1] = np.nan
        assert same(found, read_prices(expected, stamp=stamp))
        assert found.counts["partial_bars"] == 2

    @pytest.mark.parametrize(("stamp", "bars"), [("start", 79), ("end", 80)])
    def test_a_bar_that_is_not_over_is_left_out(self, stamp: Any, bars: int) -> None:
        now = DAYS[-1].to_pydatetime() + HOUR
        found = read_prices(wide(), stamp=stamp, now=now)
        assert (len(found.starts), found.counts["partial_bars"]) == (bars, 4 * (80 - bars))

    @pytest.mark.parametrize("bar", [None, "1h"])
    def test_points_that_jitter_are_refused_with_how_to_round_them(self, bar: Any) -> None:
        hours = pd.date_range(DAYS[0], periods=200, freq="h")
        late = np.random.default_rng(3).integers(5_000, 240_000, (2, 200))
        parts = [pd.Series(1.0, hours + pd.to_timedelta(each, unit="ms")) for each in late]
        frame = pd.DataFrame({"c0": parts[0], "c1": parts[1]})
        with pytest.raises(InvalidArgument, match=r"bars of 1:00:00.*floor\('60min'\)") as error:
            read_prices(frame, bar=bar)
        advice = re.search(r"frame\.groupby.*?first\(\)", str(error.value))
        assert advice is not None
        assert len(read_prices(eval(advice[0], {"frame": frame}), bar=bar).starts) == 200


class TestReturns:
    def test_the_market_is_the_mean_of_the_other_coins(self) -> None:
        returns = compute_returns(read_prices(wide()))
        found = returns.take_market(np.array([2]), np.array([10]), 1)
        moves = np.log(wide()).diff().iloc[10]
        assert found[0, 0] == pytest.approx(moves.drop("c2").mean())

    def test_a_price_is_carried_over_a_short_gap_and_never_past_the_last(self) -> None:
        frame = wide()
        frame.iloc[50:52, 0], frame.iloc[60:, 1], frame.iloc[30:33, 2] = np.nan, np.nan, np.nan
        returns = compute_returns(read_prices(frame), max_gap=2)
        assert returns.carried[0, 50:52].tolist() == [0.0, 0.0]
        whole = np.log(frame.iloc[52, 0] / frame.iloc[49, 0])
        assert returns.carried[0, 52] == pytest.approx(whole)
        assert np.isnan(returns.strict[0, 50:53]).all()
        assert np.isnan(returns.carried[1, 60:]).all()
        assert np.isnan(returns.carried[2, 30:34]).all()

    def test_simple_returns_compound_to_the_price(self) -> None:
        returns = compute_returns(read_prices(wide()), kind="simple")
        ratio = wide()["c0"].iloc[11] / wide()["c0"].iloc[10] - 1
        assert returns.strict[0, 11] == pytest.approx(ratio)


class TestPlacing:
    def test_a_coin_that_ends_in_the_window_stays_until_its_last_price(self) -> None:
        frame = wide()
        frame.iloc[61:, 1] = np.nan
        found = placed(frame, rows(c0=60, c1=60, c2=60))
        ended = found.rows.set_index("event_id")["delisted_in_window"]
        assert ended.to_dict() == {"c0": False, "c1": True, "c2": False}
        assert found.windows.live.sum(axis=1).tolist() == [4, 2, 4]
        frozen = found.windows.cumulated[1]
        assert frozen[1] == frozen[2] == frozen[3]

    def test_rows_that_lack_prices_have_their_reason(self) -> None:
        frame = wide(8)
        frame.iloc[:50, 1] = np.nan  # Starts late.
        frame.iloc[58:62, 2] = np.nan  # Has a gap that is too long.
        frame.iloc[:60, 3] = np.nan  # Is not traded at entry.
        frame.iloc[:, 4] = 7.0  # Does not move.
        events = rows(c0=60, c1=60, c2=61, c3=60, c4=60, c5=20, c6=78)
        found = placed(frame, events)
        reasons = dict(zip(found.excluded["coin"], found.excluded["reason"], strict=True))
        assert reasons == {
            "c1": "short_estimation",
            "c2": "not_trading_at_entry",
            "c3": "not_trading_at_entry",
            "c4": "no_variance",
            "c5": "before_prices",
            "c6": "after_prices",
        }
        assert found.rows["coin"].tolist() == ["c0"]

    @pytest.mark.parametrize(("missing", "bars"), [([58], 3), ([57, 58], 3), ([58, 59], 2)])
    def test_a_price_carried_over_a_gap_before_entry_is_no_entry(
        self, missing: list[int], bars: int
    ) -> None:
        frame = wide()
        frame.iloc[58:, 0] *= 2  # Before the entry, at the start of bar 59.
        frame.iloc[missing, 0] = np.nan
        found = placed(frame, rows(c0=60)).rows.iloc[0]
        assert found["bars"] == bars
        assert abs(found["car"]) < 0.3

    def test_the_first_bar_after_entry_counts_from_its_open(self) -> None:
        frame = wide()
        opened = frame.shift(1) * 1.01
        both = long(frame).merge(long(opened.rename_axis("ts")), on=["ts", "coin"])
        both = both.rename(columns={"close_x": "close", "close_y": "open"})
        found = placed(both, rows(c0=60))
        plain = placed(frame, rows(c0=60))
        first = found.windows.abnormal[0] - plain.windows.abnormal[0]
        np.testing.assert_allclose(first, [-np.log(1.01), 0, 0, 0], atol=1e-12)

    def test_a_date_when_the_market_is_closed_is_of_the_next_bar(self) -> None:
        frame = wide().drop(index=DAYS[[60, 61]])
        prices = read_prices(frame, bars="frame")
        instants = np.array([DAYS[60].value // 1000 + 3_600_000_000, DAYS[59].value // 1000])
        assert prices.find_bars(instants).tolist() == [60, 59]
        assert prices.find_next_bars(instants).tolist() == [60, 59]
        assert prices.bar_us == 86_400_000_000
