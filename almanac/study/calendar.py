"""Tests that hold when events cluster: sums over calendar days, and blocks of events.

Belongs here: the share of each calendar day in the mean, the sign-flip test on it with its band,
the block bootstrap over events. Does not: tests that take rows as independent (parametric).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from almanac.study.parametric import UNKNOWN, Verdict
from almanac.study.prices import Floats, Integers
from almanac.study.returns import Returns
from almanac.study.windows import Windows, residuals_of


@dataclass(frozen=True, slots=True)
class DayShares:
    """What each calendar day adds to the mean cumulated abnormal return: `[day, bar]`.

    The columns sum to the mean up to each bar. `in_window` says which days have a bar of a window;
    the others are of estimation windows alone.
    """

    values: Floats
    in_window: Integers

    @property
    def mean(self) -> Floats:
        summed: Floats = self.values.sum(axis=0)
        return summed


def shares_of_days(returns: Returns, windows: Windows, scale: Floats | None = None) -> DayShares:
    """Return what each day adds to the mean over rows of the cumulated abnormal return.

    The mean is a weighted sum of returns: 1 in a window, and in an estimation window the share with
    which the return moves the fitted parameters, -(k/m + (x - x̄) Σ(x - x̄) / Sxx). The sum of a day
    has every row that was open, or being fitted, that day: the correlation of coins, windows that
    overlap, and errors of parameters that events have in common. `scale` weights the rows.
    """
    rows = len(windows.zero)
    weight = (np.ones(rows) if scale is None else scale) / rows
    abnormal = windows.abnormal * weight[:, None]
    values = np.zeros((int(returns.day[-1]) + 1, windows.spans.length))
    for place, offset in enumerate(windows.spans.relative):
        day = returns.day[windows.zero + offset]
        values[:, place] = np.bincount(day, weights=abnormal[:, place], minlength=len(values))
    in_window = np.flatnonzero(
        np.bincount(
            returns.day[(windows.zero[:, None] + windows.spans.relative)[windows.live]],
            minlength=len(values),
        )
    )
    values = np.cumsum(values, axis=1)
    by_mean = weight[:, None] * np.cumsum(windows.live, axis=1) / windows.fitted_on[:, None]
    by_market = weight[:, None] * np.cumsum(windows.market, axis=1)
    if windows.model == "market":
        by_market = by_market / windows.market_squares[:, None]
    starts = np.flatnonzero(np.diff(returns.day, prepend=-1))
    for part in residuals_of(returns, windows):
        zero = windows.zero[part.rows]
        edges = np.flatnonzero(np.diff(zero, prepend=-1, append=-1))
        beside = part.residuals * part.market
        begin = zero[edges[:-1]] + windows.spans.fitted[0]
        later = np.searchsorted(starts, begin, side="right")
        after = np.searchsorted(starts, begin + windows.spans.estimation, side="left")
        for group, (start, stop) in enumerate(pairwise(edges)):
            mine = slice(part.rows.start + start, part.rows.start + stop)
            firsts = np.append(0, starts[later[group] : after[group]] - begin[group])
            moved = np.add.reduceat(part.residuals[start:stop], firsts, axis=1).T @ by_mean[mine]
            if windows.model == "market":
                moved += np.add.reduceat(beside[start:stop], firsts, axis=1).T @ by_market[mine]
            day = returns.day[begin[group]]
            values[day : day + len(firsts)] -= moved
    is_used = np.asarray(values.any(axis=1))
    is_used[in_window] = True
    place_of = np.cumsum(is_used) - 1
    return DayShares(values[is_used], place_of[in_window])


def flip_signs(shares: DayShares, *, rounds: int, seed: int) -> Floats:
    """Return means under no effect, `[round, bar]`: the share of each day gets a random sign.

    If returns have no mean and are symmetric, and days are independent, each is as likely as the
    mean that was found: no variance is estimated, and no tail is assumed.
    """
    signs = np.random.default_rng(seed).integers(0, 2, (rounds, len(shares.values)), dtype=np.int8)
    flipped: Floats = (2.0 * signs - 1.0) @ shares.values
    return flipped


def calendar_test(name: str, shares: DayShares, flipped: Floats, least_days: int) -> Verdict:
    """Return the verdict of the whole window: p is the share of flips that are as far from 0.

    The statistic is the mean over the root of the sum of squares of the days. It can't be computed
    with fewer than `least_days` days in windows.
    """
    last, found = shares.values[:, -1], float(shares.mean[-1])
    spread = float(np.sqrt((last**2).sum()))
    if len(shares.in_window) < least_days or not spread > 0:
        return Verdict(name, UNKNOWN, UNKNOWN, UNKNOWN)
    return Verdict(name, found / spread, UNKNOWN, float(share_beyond(found, flipped[:, -1])))


def share_beyond(found: float, flipped: Floats) -> float:
    """Return p: the share of draws at least as far from 0, the one that was found counted in."""
    beyond = np.abs(flipped) >= abs(found) * (1 - 1e-12)
    return float((1 + beyond.sum()) / (1 + len(flipped)))


def blocks_of(zero: Integers, length: int) -> Integers:
    """Return the block of each row: events within `length` bars of the first of a block.

    `zero` must be in order. Windows of two blocks that are not neighbours do not overlap.
    """
    block = np.empty(len(zero), dtype=np.int64)
    number, start = -1, None
    for bar in np.unique(zero):
        if start is None or bar >= start + length:
            number, start = number + 1, bar
        block[np.searchsorted(zero, bar) : np.searchsorted(zero, bar, side="right")] = number
    return block


def block_bootstrap(values: Floats, block: Integers, *, rounds: int, seed: int) -> Verdict:
    """Return the verdict of a studentised bootstrap that draws whole blocks of rows.

    t is the mean over its error clustered by block; p is the share of draws whose t about the mean
    that was found is as far from 0.
    """
    blocks = int(block.max()) + 1 if len(block) else 0
    if blocks < 2:
        return Verdict("block_bootstrap", UNKNOWN, UNKNOWN, UNKNOWN)
    sums, counts = np.bincount(block, weights=values), np.bincount(block).astype(np.float64)
    found = float(values.mean())
    scale = blocks / (blocks - 1)
    error = np.sqrt(scale * ((sums - counts * found) ** 2).sum()) / counts.sum()
    if not error > 0:
        return Verdict("block_bootstrap", UNKNOWN, UNKNOWN, UNKNOWN)
    drawn = np.random.default_rng(seed).integers(0, blocks, (rounds, blocks))
    total, rows = sums[drawn].sum(axis=1), counts[drawn].sum(axis=1)
    means = total / rows
    off = sums[drawn] - counts[drawn] * means[:, None]
    errors = np.sqrt(scale * (off**2).sum(axis=1)) / rows
    # A draw of one block alone has no error; such a draw counts as the farthest.
    statistics = np.where(errors > 0, (means - found) / np.where(errors > 0, errors, 1.0), np.inf)
    p = share_beyond(found / error, statistics)
    return Verdict("block_bootstrap", found / float(error), UNKNOWN, p)
