"""Event weights and the test of two groups, beside formulas that share no code with the package."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from almanac.study.estimates import (
    Comparison,
    Draws,
    Group,
    Weights,
    compared,
    equal,
    figures_of,
    weigh,
)
from almanac.study.returns import returns_of
from almanac.study.significance import adjusted_bmp, flip_signs, mean_correlation, shares_of_days
from almanac.study.windows import Spans, fit
from tests.almanac.study.test_formulas import MODELS, ByHand, ours
from tests.almanac.study.worlds import Shape, make_world

DAY_US = 86_400_000_000
EVENTS = [event for day in range(6) for event in (f"{day} two coins", f"{day} two coins", f"{day}")]
"""Each of the six days has an event with two coins, and one with one."""
FIRST = np.array([row for row in range(18) if row % 3 == 0 or row >= 15])
OTHER = np.setdiff1d(np.arange(18), FIRST)


class Case:
    def __init__(self, model: str) -> None:
        self.hand = ByHand(model)
        self.returns, self.windows, self.values, self.scaled = ours(self.hand, model)
        self.day = self.hand.zero

    def by_event(self, values: Any) -> Any:
        return pd.Series(values).groupby(EVENTS, sort=False).mean().to_numpy()


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


class TestEventWeights:
    def test_each_event_has_the_same_share(self) -> None:
        weights = weigh(pd.DataFrame({"event_id": EVENTS}), "events")
        np.testing.assert_allclose(weights.share, [1 / 24, 1 / 24, 1 / 12] * 6)
        assert weights.units == 12
        assert equal(18).units == 18

    def test_means_and_tests_are_those_of_event_means(self, case: Case) -> None:
        weights = weigh(pd.DataFrame({"event_id": EVENTS}), "events")
        found = figures_of(case.returns, case.windows, Draws(99, 0, 0.95), DAY_US, weights)
        tests = {verdict.test: verdict for verdict in found.verdicts}
        assert set(tests) == {"calendar", "cross_sectional_t", "adjusted_bmp"}
        cars = case.by_event(case.hand.car)
        assert found.table["caar"].iloc[-1] == pytest.approx(cars.mean())
        for bar in range(5):
            plain = stats.ttest_1samp(case.by_event(np.array(case.hand.abnormal)[:, bar]), 0)
            assert found.table["aar_t"].iloc[bar] == pytest.approx(plain.statistic)
        plain = stats.ttest_1samp(cars, 0)
        of_units = tests["cross_sectional_t"]
        assert (of_units.statistic, of_units.p) == pytest.approx((plain.statistic, plain.pvalue))

    def test_the_correlation_is_that_of_all_pairs_of_events(self, case: Case) -> None:
        weights = weigh(pd.DataFrame({"event_id": EVENTS}), "events")
        names = list(dict.fromkeys(EVENTS))
        series = {}
        for name in names:
            rows = [row for row, event in enumerate(EVENTS) if event == name]
            mean = np.zeros(60)
            for row in rows:
                line = np.zeros(60)
                for bar, value in case.hand.residuals[row].items():
                    line[bar + 66] = value
                mean += line / math.sqrt((line**2).mean())
            series[name] = (case.hand.zero[rows[0]], mean / math.sqrt((mean**2).mean()))
        total = 0.0
        for earlier, other in itertools.combinations(names, 2):
            (zero, first), (later, second) = series[earlier], series[other]
            apart = later - zero
            if apart < 5:
                total += 2 * (first[apart:] @ second[: 60 - apart]) / (60 - apart) * (5 - apart) / 5
        expected = total / (len(names) * (len(names) - 1))
        r = mean_correlation(case.returns, case.windows, weights.unit)
        assert r == pytest.approx(expected)
        scars = case.by_event(case.hand.scar)
        t = scars.mean() / scars.std(ddof=1) * math.sqrt(12)
        expected_t = t * math.sqrt((1 - r) / (1 + 11 * r))
        assert adjusted_bmp(scars, r).statistic == pytest.approx(expected_t)

    def test_events_with_one_coin_each_are_rows(self, case: Case) -> None:
        alone = weigh(pd.DataFrame({"event_id": [str(row) for row in range(18)]}), "events")
        draws = Draws(199, 0, 0.95)
        by_event = figures_of(case.returns, case.windows, draws, DAY_US, alone)
        by_row = figures_of(case.returns, case.windows, draws, DAY_US)
        pd.testing.assert_frame_equal(by_event.table, by_row.table)
        kept = {verdict.test: verdict for verdict in by_row.verdicts}
        for verdict in by_event.verdicts:
            assert verdict.statistic == pytest.approx(kept[verdict.test].statistic)


def compare(case: Case, first: Any = FIRST, other: Any = OTHER, rounds: int = 199) -> Comparison:
    groups = [
        Group(name, rows, equal(len(rows)), len(rows))
        for name, rows in (("first", first), ("other", other))
    ]
    return compared(case.returns, case.windows, *groups, Draws(rounds, 3, 0.95))


class TestTwoGroups:
    def test_the_difference_is_that_of_the_means(self, case: Case) -> None:
        found = compare(case)
        car = case.hand.car
        assert found.difference == pytest.approx(car[FIRST].mean() - car[OTHER].mean())
        assert found.groups["n"].tolist() == [len(FIRST), len(OTHER)]
        np.testing.assert_allclose(found.groups["caar"], [car[FIRST].mean(), car[OTHER].mean()])

    def test_welch_is_that_of_scipy(self, case: Case) -> None:
        found = compare(case).tests.set_index("test").loc["welch_t"]
        plain = stats.ttest_ind(case.hand.car[FIRST], case.hand.car[OTHER], equal_var=False)
        expected = (plain.statistic, plain.df, plain.pvalue)
        assert (found["statistic"], found["degrees"], found["p"]) == pytest.approx(expected)

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

    def test_few_days_have_no_headline(self, case: Case) -> None:
        found = compare(case, first=np.array([0]))
        assert found.headline.test == "none"
        assert np.isnan(found.low)
        assert "too few days" in repr(found)

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
                returns = returns_of(
                    prices.__class__(prices.starts, DAY_US, prices.coins, close, None, {})
                )
                windows, _ = fit(returns, zero, coin, zero - 1, Spans(0, 3, 60, 5, 30), "market")
                rows = [np.flatnonzero(half), np.flatnonzero(~half)]
                groups = [Group(str(n), r, equal(len(r)), len(r)) for n, r in enumerate(rows)]
                p.append(compared(returns, windows, *groups, Draws(499, 0, 0.95)).headline.p)
            assert p[1] < 0.05
            small += p[0] < 0.05
        assert small <= 1

    def test_weights_of_events_weigh_the_groups(self, case: Case) -> None:
        frame = pd.DataFrame({"event_id": EVENTS})
        groups = [
            Group(name, rows, weigh(frame.loc[rows], "events"), 0)
            for name, rows in (("first", FIRST), ("other", OTHER))
        ]
        found = compared(case.returns, case.windows, *groups, Draws(99, 0, 0.95))
        cars = pd.Series(case.hand.car)
        means = [
            cars[rows].groupby([EVENTS[row] for row in rows]).mean().mean()
            for rows in (FIRST, OTHER)
        ]
        assert found.difference == pytest.approx(means[0] - means[1])


def test_scaled_shares_of_days_sum_to_the_weighted_mean(case: Case) -> None:
    share = np.arange(1.0, 19.0) / np.arange(1.0, 19.0).sum()
    weights = Weights(share, np.arange(18))
    shares = shares_of_days(case.returns, case.windows, weights.scale)
    np.testing.assert_allclose(shares.mean[-1], share @ case.hand.car)
    assert flip_signs(shares, rounds=9, seed=0).shape == (9, 5)
