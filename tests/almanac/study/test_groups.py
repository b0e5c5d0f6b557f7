"""The test of two groups, beside formulas that share no code with the package."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from almanac.study.estimates import Comparison, Draws, Group, compare_groups
from almanac.study.returns import compute_returns
from almanac.study.windows import Spans, fit_windows
from tests.almanac.study.test_formulas import MODELS, ByHand, ours
from tests.almanac.study.worlds import Shape, make_world

DAY_US = 86_400_000_000
FIRST = np.array([row for row in range(18) if row % 3 == 0 or row >= 15])
OTHER = np.setdiff1d(np.arange(18), FIRST)


class Case:
    def __init__(self, model: str) -> None:
        self.hand = ByHand(model)
        self.returns, self.windows, self.values, self.scaled = ours(self.hand, model)
        self.day = self.hand.zero


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def compare(case: Case, first: Any = FIRST, other: Any = OTHER, rounds: int = 199) -> Comparison:
    groups = [Group(name, rows, len(rows)) for name, rows in (("first", first), ("other", other))]
    return compare_groups(case.returns, case.windows, *groups, Draws(rounds, 3, 0.95))


class TestTwoGroups:
    def test_the_difference_is_that_of_the_means(self, case: Case) -> None:
        found = compare(case)
        car = case.hand.car
        assert found.difference == pytest.approx(car[FIRST].mean() - car[OTHER].mean())
        assert found.groups["n"].tolist() == [len(FIRST), len(OTHER)]
        np.testing.assert_allclose(found.groups["caar"], [car[FIRST].mean(), car[OTHER].mean()])

    def test_calendar_flips_what_each_day_adds_less_the_common_mean(self, case: Case) -> None:
        hand, market = case.hand, np.append(np.nan, np.diff(np.log(case.hand.foreign)))
        abnormal = np.array(hand.abnormal)
        common = abnormal.mean(axis=0)
        days = np.zeros(len(hand.moves))
        for row, zero in enumerate(hand.zero):
            weight = 1 / len(FIRST) if row in FIRST else -1 / len(OTHER)
            days[zero - 1 : zero + 4] += weight * (abnormal[row] - common)
            used = [zero + bar for bar in hand.residuals[row]]
            x, inside = market[used], market[zero - 1 : zero + 4]
            slope = (x - x.mean()) * (inside - x.mean()).sum() / ((x - x.mean()) ** 2).sum()
            mine = 5 / len(used) + (slope if case.windows.parameters == 2 else 0.0)
            days[used] -= weight * mine * np.array(list(hand.residuals[row].values()))
        found = compare(case)
        spread = math.sqrt(6 / 5 * (days**2).sum())
        verdict = found.tests.set_index("test").loc["calendar"]
        assert verdict["statistic"] == pytest.approx(found.difference / spread)
        assert days.sum() == pytest.approx(found.difference)
        # With many draws, p is near that of the normal; there are some hundred days.
        many = compare(case, rounds=9_999)
        normal = 2 * stats.norm.sf(abs(found.difference) / spread)
        assert many.headline.p == pytest.approx(normal, abs=0.05)
        assert many.low == pytest.approx(found.difference - 1.96 * spread, abs=0.4 * spread)

    def test_a_row_in_both_groups_counts_by_the_difference(self, case: Case) -> None:
        both = np.union1d(OTHER, FIRST[:2])
        found = compare(case, other=both)
        car = case.hand.car
        assert found.difference == pytest.approx(car[FIRST].mean() - car[both].mean())
        same = compare(case, other=FIRST)
        assert same.difference == pytest.approx(0.0)
        assert same.headline.test == "none" and np.isnan(same.headline.p)

    def test_a_group_that_jumps_more_is_found(self) -> None:
        """A jump that both groups have is no difference, also if they have other days."""
        small = 0
        for seed in range(4):
            prices, zero, coin, _ = make_world(seed, Shape(bars=500, jump=0.03))
            half = np.isin(zero, np.unique(zero)[::2])
            moved = prices.close.copy()
            for bar, place in zip(zero[half], coin[half], strict=True):
                moved[bar:, place] *= 1.04
            p = []
            for close in (prices.close, moved):
                returns = compute_returns(
                    prices.__class__(prices.starts, DAY_US, prices.coins, close, None, {})
                )
                spans = Spans(0, 3, 60, 5, 30)
                windows, _ = fit_windows(returns, zero, coin, zero - 1, spans, "market")
                rows = [np.flatnonzero(half), np.flatnonzero(~half)]
                groups = [Group(str(n), r, len(r)) for n, r in enumerate(rows)]
                p.append(compare_groups(returns, windows, *groups, Draws(499, 0, 0.95)).headline.p)
            assert p[1] < 0.05
            small += p[0] < 0.05
        assert small <= 1
