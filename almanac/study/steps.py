"""Steps of prices by a power of ten, as a redenomination makes them.

Belongs here: which returns are such steps. Does not: what a study does with them (returns,
placing). A coin that exchanges 1,000 old units for a new one, or data that change their unit, move
a price by 1:1000 in a bar in which nothing happened.
"""

from typing import Final

import numpy as np

from almanac.study.prices import Floats

_NEAR: Final = 0.25
"""How far, in logarithms, a step may be from its power of ten, for each power: the market moves in
this bar, too. A step of 1:10 has 0.78 to 1.28 of it, one of 1:1000 half to twice."""
_NEAR_MAX: Final = 1.15
_CALM: Final = 0.25
"""The share of a step that moves of the bars beside it may have; a crash goes on or rebounds."""
_BESIDE: Final = 3


def power_steps(moves: Floats) -> Floats:
    """Return the power of ten of each move of a price that is a step, else 0.

    `moves` are logarithms `[coin, bar]`, NaN where there is none. A step is near a power of ten,
    and the bars beside it move little, or take the step back, as a single wrong price does.
    """
    power = np.zeros_like(moves)
    large = np.nonzero(np.abs(moves) > np.log(10.0) - _NEAR)  # Never where it is NaN.
    nearest = np.round(moves[large] / np.log(10.0))
    off = np.abs(moves[large] - nearest * np.log(10.0))
    power[large] = np.where(off <= np.minimum(_NEAR * np.abs(nearest), _NEAR_MAX), nearest, 0.0)
    found = np.zeros_like(power)
    for coin, bar in zip(*np.nonzero(power), strict=True):
        near = np.r_[max(bar - _BESIDE, 0) : bar, bar + 1 : bar + 1 + _BESIDE]
        near = near[near < moves.shape[1]]
        beside = np.nan_to_num(moves[coin, near])
        beside = np.where(power[coin, near] == -power[coin, bar], 0.0, beside)
        if (np.abs(beside) <= _CALM * np.abs(moves[coin, bar])).all():
            found[coin, bar] = power[coin, bar]
    return found
