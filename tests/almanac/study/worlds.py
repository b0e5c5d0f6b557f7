"""Prices made by us: one common factor, heavy tails, volatility clusters, events on few days.

    prices, zero, coin, foreign = make_world(1, Shape(correlation=0.7))
    returns = returns_of(prices)

Belongs here: prices without any effect, or with a planted jump, and events on them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from almanac.study.prices import Prices

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a world is like; `degrees` are those of Student's t, `volatility` is of a day."""

    bars: int = 700
    coins: int = 40
    days: int = 15
    events: int = 60
    correlation: float = 0.7
    degrees: float = 4.0
    volatility: float = 0.03
    jump: float = 0.0


PLAIN = Shape()


def make_world(seed: int, shape: Shape = PLAIN) -> tuple[Prices, Any, Any, Any]:
    """Return prices, bar 0 and column of each event in the order of bars, and a foreign market."""
    random = np.random.default_rng(seed)
    unit = np.sqrt((shape.degrees - 2) / shape.degrees)
    common = random.standard_t(shape.degrees, shape.bars) * unit
    own = random.standard_t(shape.degrees, (shape.bars, shape.coins)) * unit
    moves = np.sqrt(shape.correlation) * common[:, None] + np.sqrt(1 - shape.correlation) * own
    variance = np.ones(shape.bars)
    for bar in range(1, shape.bars):
        shock = min(variance[bar - 1] * common[bar - 1] ** 2, 25.0)
        variance[bar] = 0.05 + 0.15 * shock + 0.80 * variance[bar - 1]
    moves = shape.volatility * np.sqrt(variance)[:, None] * moves
    days = np.sort(random.choice(np.arange(150, shape.bars - 20), shape.days, replace=False))
    each = shape.events // shape.days
    coin = np.concatenate([random.permutation(shape.coins)[:each] for _ in days])
    zero = np.repeat(days, each)
    moves[zero, coin] += shape.jump
    foreign = np.exp(np.cumsum(random.standard_normal(shape.bars) * shape.volatility))
    names = tuple(f"coin-{place}" for place in range(shape.coins))
    starts = np.arange(shape.bars, dtype=np.int64) * DAY_US
    prices = Prices(starts, DAY_US, names, np.exp(np.cumsum(moves, axis=0)), None, {})
    return prices, zero, coin, foreign
