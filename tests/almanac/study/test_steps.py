"""Steps of prices by a power of ten: found in both directions, and never averaged in silence."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import almanac
from almanac.study.prices import read_prices
from almanac.study.returns import compute_returns, find_power_steps
from tests.almanac.study.test_names import OPTIONS, db, own_events, prices

__all__ = ["db"]  # The fixture.
FACTORS = [1e-6, 0.1, 10.0, 1e3]
EVENT = pd.Timestamp("2026-03-05", tz="UTC")
"""Day 0 of the third of `own_events`."""


def stepped(factor: float, at: Any = EVENT, coin: str = "bitcoin") -> pd.DataFrame:
    frame = prices("bitcoin", "ethereum", "nada")
    frame.loc[at:, coin] *= factor
    return frame


class TestFinding:
    @given(
        power=st.sampled_from([-8, -6, -4, -3, -2, -1, 1, 2, 3, 4, 6, 8]),
        bar=st.integers(1, 59),
        seed=st.integers(0, 1_000),
        volatility=st.sampled_from([0.001, 0.01, 0.03]),
    )
    def test_a_step_by_a_power_of_ten_is_found_where_it_is(
        self, power: int, bar: int, seed: int, volatility: float
    ) -> None:
        moves = np.clip(np.random.default_rng(seed).standard_t(4, (2, 60)), -4, 4) * volatility
        moves[:, 0] = np.nan
        moves[1, bar] += power * np.log(10)
        found = find_power_steps(moves)
        assert found[1, bar] == power
        assert np.count_nonzero(found) == 1

    def test_a_single_wrong_price_is_two_steps(self) -> None:
        moves = np.full((1, 30), 0.01)
        moves[0, 10], moves[0, 11] = np.log(1_000), -np.log(1_000)
        assert np.flatnonzero(find_power_steps(moves)[0]).tolist() == [10, 11]

    def test_a_crash_of_many_days_is_no_redenomination(self) -> None:
        """Terra in May 2022: falls by 1:16, 1:223 and 1:22 on three days."""
        closes = [84, 80, 77, 73, 64, 30.8, 17.5, 1.07, 0.0048, 0.00022, 0.00035, 0.00018]
        assert not find_power_steps(np.diff(np.log([closes]))).any()

    @pytest.mark.parametrize("ratio", [0.2, 0.5, 2.0, 7.0])
    def test_other_moves_are_returns(self, ratio: float) -> None:
        moves = np.full((1, 30), 0.01)
        moves[0, 10] = np.log(ratio)
        assert not find_power_steps(moves).any()


class TestReturns:
    @pytest.mark.parametrize("kind", ["log", "simple"])
    @pytest.mark.parametrize("factor", FACTORS)
    def test_there_is_no_return_across_a_step(self, kind: Any, factor: float) -> None:
        plain = compute_returns(read_prices(stepped(1.0)), kind=kind)
        found = compute_returns(read_prices(stepped(factor)), kind=kind)
        bar = int(np.flatnonzero(found.steps[0])[0])
        assert np.count_nonzero(found.steps) == 1
        assert np.isnan(found.strict[0, bar]) and np.isnan(found.carried[0, bar])
        expected = plain.strict.copy()
        expected[0, bar] = np.nan
        np.testing.assert_allclose(found.strict, expected, rtol=1e-6, atol=1e-12)
        kept = compute_returns(read_prices(stepped(factor)), kind=kind, steps="keep")
        assert np.isfinite(kept.strict[0, bar])

    def test_the_mean_of_the_others_has_no_step(self) -> None:
        plain, found = (compute_returns(read_prices(stepped(f))) for f in (1.0, 1e-3))
        bar = int(np.flatnonzero(found.steps[0])[0])
        beside = [r.take_market(np.array([1]), np.array([bar]), 1)[0, 0] for r in (plain, found)]
        assert beside[1] == pytest.approx(plain.strict[2, bar])
        assert abs(beside[1] - beside[0]) < 0.1


class TestStudy:
    @pytest.mark.parametrize("factor", FACTORS)
    def test_rows_across_a_step_are_left_out_and_it_is_named(
        self, db: almanac.Database, factor: float
    ) -> None:
        found = db.event_study(stepped(factor), events=own_events("bitcoin", "ethereum"), **OPTIONS)
        assert found.counts["redenominations"] == 1
        assert found.counts["redenomination"] == 1
        assert found.counts["used"] == 11
        step = found.redenominations.iloc[0]
        assert (step["coin"], step["ts"]) == ("bitcoin", EVENT)
        assert step["factor"] == pytest.approx(factor)
        assert step["ratio"] == pytest.approx(factor, rel=0.2)
        assert abs(found.caar) < 0.05
        assert "redenomination: bitcoin" in repr(found)

    def test_a_step_outside_of_windows_leaves_no_row_out(self, db: almanac.Database) -> None:
        found = db.event_study(
            stepped(1e-3, at=EVENT - pd.Timedelta(days=40)),
            events=own_events("bitcoin", "ethereum"),
            **OPTIONS,
        )
        assert found.counts["used"] == 12
        assert found.counts["redenominations"] == 1
        # The models of the later bitcoin events lack this return alone.
        assert found.events["fitted_on"].min() == 119
        assert abs(found.caar) < 0.05

    def test_the_caller_may_keep_the_step_and_the_report_says_so(
        self, db: almanac.Database, tmp_path: Path
    ) -> None:
        plain = db.event_study(stepped(1.0), events=own_events("bitcoin"), **OPTIONS)
        assert plain.redenominations.empty and "power of ten" not in repr(plain)
        found = db.event_study(
            stepped(1e-3),
            events=own_events("bitcoin"),
            window=(-1, 1),
            options=almanac.StudyOptions(redenominations="keep", rounds=99),
        )
        assert found.counts["used"] == 12
        assert found.counts["redenomination_in_window"] == 1
        assert found.events["redenomination_in_window"].sum() == 1
        assert found.caar < -0.3
        assert "0 left out, 1 used" in repr(found)
        page = found.to_html(tmp_path / "study.html")
        assert "Steps of prices by a power of ten" in page and "kept as returns" in page

    def test_a_step_of_the_market_is_named(self, db: almanac.Database) -> None:
        frame = stepped(1.0)
        for market in (stepped(1e-3)["bitcoin"], {"ethereum": stepped(1e-3)["bitcoin"]}):
            found = db.event_study(frame, events=own_events("ethereum"), market=market, **OPTIONS)
            assert found.redenominations["coin"].str.startswith("market").all()
            assert found.counts["market_missing"] == 1
            assert abs(found.caar) < 0.05
