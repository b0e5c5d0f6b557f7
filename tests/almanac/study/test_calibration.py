"""The headline on prices without any effect, where events share days; and on a planted jump.

`docs/study.md` has the figures of 500 seeds over a home; here are few, and more if `long`.
"""

import numpy as np
import pytest
from scipy import stats

from almanac.study.estimates import Draws, Group, Weights, compared, equal, headline_of
from almanac.study.returns import Model, returns_of
from almanac.study.significance import cross_sectional
from almanac.study.windows import Spans, fit
from tests.almanac.study.worlds import Shape, make_world

MODELS: tuple[Model, ...] = ("market", "mean")


def p_values(seed: int, model: Model, shape: Shape, window: tuple[int, int]) -> tuple[float, float]:
    """Return p of the headline and of the plain t."""
    prices, zero, coin, _ = make_world(seed, shape)
    spans = Spans(window[0], window[1], estimation=120, gap=10, least=60)
    returns = returns_of(prices)
    windows, usable = fit(returns, zero, coin, zero + window[0], spans, model)
    assert usable.all()
    headline = headline_of(returns, windows, Draws(rounds=499, seed=seed, confidence=0.95))
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
        (Shape(days=1, events=20), (0, 0)),
        (Shape(days=3, events=30), (-3, 3)),
        (Shape(days=200, events=400), (0, 9)),
    ],
)
def test_the_headline_holds_on_few_days_and_where_windows_overlap(
    model: Model, shape: Shape, window: tuple[int, int]
) -> None:
    headline, _ = rejected(200, model, shape, window)
    assert headline <= at_most(200, 0.07)


@pytest.mark.parametrize("seeds", [10, pytest.param(200, marks=pytest.mark.long)])
def test_a_jump_of_two_percent_is_found(seeds: int) -> None:
    headline, _ = rejected(seeds, "market", Shape(jump=0.02), (0, 0))
    assert headline >= 0.95 * seeds


@pytest.mark.parametrize("seeds", [20, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("own_days", [True, False])
@pytest.mark.parametrize("jump", [0.0, 0.03])
def test_groups_without_a_difference_hold_though_both_jump(
    model: Model, own_days: bool, jump: float, seeds: int
) -> None:
    found = [compare(seed, model, Shape(jump=jump), own_days=own_days) for seed in range(seeds)]
    assert sum(p < 0.05 for p in found) <= at_most(seeds, 0.06)


def compare(seed: int, model: Model, shape: Shape, *, own_days: bool) -> float:
    """Return p of the difference between two halves: of the days, or of the rows."""
    prices, zero, coin, _ = make_world(seed, shape)
    random = np.random.default_rng(seed + 1_000_000)
    spans = Spans(-1, 1, estimation=120, gap=10, least=60)
    returns = returns_of(prices)
    windows, _ = fit(returns, zero, coin, zero - 1, spans, model)
    days = random.permutation(np.unique(zero))
    is_first = np.isin(zero, days[: len(days) // 2]) if own_days else random.random(len(zero)) < 0.5
    groups = [
        Group(str(place), rows, equal(len(rows)), len(rows))
        for place, rows in enumerate((np.flatnonzero(is_first), np.flatnonzero(~is_first)))
    ]
    return compared(returns, windows, *groups, Draws(499, seed, 0.95)).headline.p


@pytest.mark.parametrize("seeds", [20, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("days", [3, 15])
def test_the_headline_holds_where_each_event_weighs_the_same(
    model: Model, days: int, seeds: int
) -> None:
    """Each day has an event with seven coins and five with one; three days are judged otherwise."""
    rejections = 0
    for seed in range(seeds):
        prices, zero, coin, _ = make_world(seed, Shape(days=days, events=12 * days))
        spans = Spans(0, 0, estimation=120, gap=10, least=60)
        returns = returns_of(prices)
        windows, _ = fit(returns, zero, coin, zero, spans, model)
        unit = np.concatenate([6 * day + np.maximum(np.arange(12) - 6, 0) for day in range(days)])
        share = 1 / np.bincount(unit)[unit] / (6 * days)
        weights = Weights(share, unit)
        rejections += headline_of(returns, windows, Draws(499, seed, 0.95), weights).p < 0.05
    assert rejections <= at_most(seeds, 0.06)
