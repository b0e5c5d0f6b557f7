"""The headline on prices without any effect, where events share days; and on a planted jump.

`docs/backtests.md` has the figures of 500 seeds over a home; here are few, and more if `long`.
"""

import numpy as np
import pytest
from scipy import stats

from almanac.study.estimates import Draws, compute_headline, cross_sectional
from almanac.study.options import Model
from almanac.study.returns import compute_returns
from almanac.study.windows import Spans, fit_windows
from tests.almanac.study.worlds import Shape, make_world

MODELS: tuple[Model, ...] = ("market", "mean")


def p_values(seed: int, model: Model, shape: Shape, window: tuple[int, int]) -> tuple[float, float]:
    """Return p of the headline and of the plain t."""
    prices, zero, coin, _ = make_world(seed, shape)
    spans = Spans(window[0], window[1], estimation=120, gap=10, least=60)
    returns = compute_returns(prices)
    windows, usable = fit_windows(returns, zero, coin, zero + window[0], spans, model)
    assert usable.all()
    headline = compute_headline(returns, windows, Draws(rounds=499, seed=seed, confidence=0.95))
    return headline.p, cross_sectional(windows.cumulated[:, -1]).p


def rejected(seeds: int, model: Model, shape: Shape, window: tuple[int, int]) -> tuple[int, int]:
    found = np.array([p_values(seed, model, shape, window) for seed in range(seeds)])
    assert np.isfinite(found).all()
    headline, plain = (found < 0.05).sum(axis=0)
    return int(headline), int(plain)


def at_most(seeds: int, share: float = 0.05) -> int:
    """Return the rejections that a test of this size exceeds once in a thousand runs."""
    return int(stats.binom(seeds, share).ppf(0.999))


@pytest.mark.parametrize("seeds", [20, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("model", MODELS)
def test_the_headline_holds_where_the_plain_t_does_not(model: Model, seeds: int) -> None:
    headline, plain = rejected(seeds, model, Shape(events=180), (-1, 1))
    assert headline <= at_most(seeds)
    if model == "mean":
        assert plain > at_most(seeds)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        (Shape(degrees=3.0), (-3, 3)),
        (Shape(days=200, events=400), (0, 9)),
    ],
)
def test_the_headline_holds_with_heavy_tails_and_where_windows_overlap(
    model: Model, shape: Shape, window: tuple[int, int]
) -> None:
    headline, _ = rejected(200, model, shape, window)
    assert headline <= at_most(200, 0.07)


@pytest.mark.parametrize("seeds", [10, pytest.param(200, marks=pytest.mark.long)])
def test_a_jump_of_two_percent_is_found(seeds: int) -> None:
    headline, _ = rejected(seeds, "market", Shape(jump=0.02), (0, 0))
    assert headline >= 0.95 * seeds
