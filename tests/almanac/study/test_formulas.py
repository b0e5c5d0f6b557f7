"""The statistics on a small fixture, beside the formulas of the papers written row by row.

The formulas here share no code with the package: loops, `numpy.linalg.lstsq`, one row at a time.
"""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from scipy import stats

from almanac.study.estimates import (
    adjust_p_values,
    calendar_test,
    compute_day_shares,
    cross_sectional,
    flip_signs,
)
from almanac.study.prices import Floats
from almanac.study.returns import Returns, compute_returns
from almanac.study.windows import Spans, Windows, fit_windows
from tests.almanac.study.worlds import Shape, make_world

SHAPE = Shape(bars=260, coins=9, days=6, events=18)
SPANS = Spans(first=-1, last=3, estimation=60, gap=5, least=30)
MODELS = ("market", "mean")


class ByHand:
    """One row at a time: the model by least squares, and what follows from it."""

    def __init__(self, model: str) -> None:
        prices, self.zero, self.coin, self.foreign = make_world(7, SHAPE)
        close = prices.close.copy()
        close[self.zero[0] - 40, self.coin[0]] = np.nan  # Two returns of one estimation window.
        self.moves = np.full(close.shape, np.nan)
        for bar in range(1, len(close)):
            self.moves[bar] = np.log(close[bar] / close[bar - 1])
        market = np.append(np.nan, np.diff(np.log(self.foreign)))
        self.abnormal, self.residuals = [], []
        for zero, coin in zip(self.zero, self.coin, strict=True):
            span = range(zero - 1 - 5 - 60, zero - 1 - 5)
            used = [bar for bar in span if not np.isnan(self.moves[bar, coin])]
            design = [[1.0] if model == "mean" else [1.0, market[bar]] for bar in used]
            own = np.array([self.moves[bar, coin] for bar in used])
            found = np.linalg.lstsq(np.array(design), own, rcond=None)[0]
            left = own - np.array(design) @ found
            inside = range(zero - 1, zero + 4)
            rows = np.array([[1.0] if model == "mean" else [1.0, market[bar]] for bar in inside])
            self.abnormal.append([self.moves[bar, coin] for bar in inside] - rows @ found)
            self.residuals.append(dict(zip([bar - zero for bar in used], left, strict=True)))
        self.car = np.array([sum(values) for values in self.abnormal])
        self.close = close
        self.prices = prices


def ours(hand: ByHand, model: str) -> tuple[Returns, Windows, Floats]:
    prices = replace(hand.prices, close=hand.close)
    returns = compute_returns(prices, market=hand.foreign)
    windows, usable = fit_windows(
        returns, hand.zero, hand.coin, hand.zero - 1, SPANS, "mean" if model == "mean" else "market"
    )
    assert usable.all()
    return returns, windows, windows.cumulated[:, -1]


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest) -> tuple[ByHand, Returns, Windows, Floats]:
    hand = ByHand(request.param)
    return hand, *ours(hand, request.param)


Both = tuple[ByHand, Returns, Windows, Floats]


def test_abnormal_returns_are_those_of_least_squares_row_by_row(both: Both) -> None:
    hand, _, windows, values = both
    np.testing.assert_allclose(windows.abnormal, hand.abnormal, atol=1e-12)
    np.testing.assert_allclose(values, hand.car, atol=1e-12)


def test_t_is_that_of_the_paper(both: Both) -> None:
    hand, _, _, values = both
    plain = stats.ttest_1samp(hand.car, 0)
    found = cross_sectional(values)
    assert (found.statistic, found.p) == pytest.approx((plain.statistic, plain.pvalue))
    counts = [len(residuals) for residuals in hand.residuals]
    assert min(counts) == 58 and max(counts) == 60


def test_the_shares_of_days_sum_to_the_mean(both: Both) -> None:
    """A day's share is of its abnormal returns, less that of the fitted parameters."""
    hand, returns, windows, _ = both
    shares = compute_day_shares(returns, windows)
    np.testing.assert_allclose(shares.mean, windows.cumulated.mean(axis=0), atol=1e-12)
    market = np.append(np.nan, np.diff(np.log(hand.foreign)))
    bars = np.zeros(len(hand.moves))
    for row, zero in enumerate(hand.zero):
        bars[zero - 1 : zero + 4] += hand.abnormal[row] / 18
        used = [zero + bar for bar in hand.residuals[row]]
        x, inside = market[used], market[zero - 1 : zero + 4]
        slope = (x - x.mean()) * (inside - x.mean()).sum() / ((x - x.mean()) ** 2).sum()
        mine = 5 / len(used) + (slope if windows.model == "market" else 0.0)
        bars[used] -= mine * np.array(list(hand.residuals[row].values())) / 18
    np.testing.assert_allclose((shares.values[:, -1] ** 2).sum(), (bars**2).sum(), rtol=1e-9)


def test_the_calendar_test_counts_the_flips_that_are_as_far(both: Both) -> None:
    _, returns, windows, _ = both
    shares = compute_day_shares(returns, windows)
    flipped = flip_signs(shares, rounds=499, seed=3)
    found = calendar_test(shares, flipped, 6)
    last = shares.values[:, -1]
    assert found.statistic == pytest.approx(last.sum() / math.sqrt((last**2).sum()))
    as_far = sum(abs(value) >= abs(last.sum()) for value in flipped[:, -1])
    assert found.p == (1 + as_far) / 500
    assert math.isnan(calendar_test(shares, flipped, 99).p)
    again = flip_signs(shares, rounds=499, seed=3)
    np.testing.assert_array_equal(flipped, again)


@pytest.mark.parametrize(
    ("control", "adjusted"),
    [
        ("bh", [0.03, 0.06, math.nan, 0.06, 0.03, 0.6, 0.24]),
        ("by", [0.0735, 0.147, math.nan, 0.147, 0.0735, 1, 0.588]),
    ],
)
def test_p_are_adjusted_without_those_that_are_unknown(
    control: Literal["bh", "by"], adjusted: list[float]
) -> None:
    p = np.array([0.01, 0.04, math.nan, 0.03, 0.005, 0.6, 0.2])
    np.testing.assert_allclose(adjust_p_values(p, control), adjusted)
    assert np.isnan(adjust_p_values(np.array([math.nan]), control)).all()
