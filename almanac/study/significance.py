"""Significance tests: parametric and calendar-time tests.

A parametric test takes one number a row (a cumulated abnormal return) and returns a `Verdict`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from almanac.study.prices import Floats, Integers
from almanac.study.returns import Returns
from almanac.study.windows import Windows, compute_residuals


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one test: two-sided p, NaN where the test can't be computed.

    `degrees` are those of Student's t; NaN for the calendar test.
    """

    test: str
    statistic: float
    degrees: float
    p: float


UNKNOWN: Final = float("nan")


def student(test: str, statistic: float, degrees: float) -> Verdict:
    from scipy.special import stdtr

    if not np.isfinite(statistic) or not degrees > 0:
        return Verdict(test, UNKNOWN, degrees, UNKNOWN)
    return Verdict(
        test, float(statistic), float(degrees), float(2 * stdtr(degrees, -abs(statistic)))
    )


def cross_sectional(values: Floats) -> Verdict:
    """t of the mean over rows, as if they were independent (Brown and Warner 1985)."""
    return student("cross_sectional_t", _t(values), len(values) - 1)


def _t(values: Floats) -> float:
    if len(values) < 2:
        return UNKNOWN
    spread = values.std(ddof=1)
    return float(values.mean() / spread * np.sqrt(len(values))) if spread > 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class DayShares:
    """The contribution of each calendar day to the mean cumulated abnormal return: `[day, bar]`.

    The columns sum to the mean up to each bar. `in_window` says which days have a bar of a window;
    the others are of estimation windows alone.
    """

    values: Floats
    in_window: Integers

    @property
    def mean(self) -> Floats:
        return np.asarray(self.values.sum(axis=0))


def compute_day_shares(returns: Returns, windows: Windows) -> DayShares:
    """Return what each day adds to the mean over rows of the cumulated abnormal return.

    A day adds residuals, not returns: the abnormal returns of windows, and of
    estimation windows the residuals of the fit, with the weight with which a return there moves the
    fitted parameters, -(k/m + (x - x̄) Σ(x - x̄) / Sxx). The latter sum to 0 over the days of a row,
    so that all days sum to the mean. The sum of a day has every row that was open, or being fitted,
    that day: the correlation of coins, windows that overlap, and errors of parameters that events
    have in common.
    """
    weight = 1 / len(windows.zero)
    abnormal = windows.abnormal * weight
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
    by_mean = weight * np.cumsum(windows.live, axis=1) / windows.fitted_on[:, None]
    by_market = weight * np.cumsum(windows.market, axis=1)
    if windows.model == "market":
        by_market = by_market / windows.market_squares[:, None]
    starts = np.flatnonzero(np.diff(returns.day, prepend=-1))
    for part in compute_residuals(returns, windows):
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


def calendar_test(shares: DayShares, flipped: Floats, least_days: int) -> Verdict:
    """Return the verdict of the whole window: p is the share of flips that are as far from 0.

    The statistic is the mean over the root of the sum of squares of the days. It can't be computed
    with fewer than `least_days` days in windows.
    """
    last, found = shares.values[:, -1], float(shares.mean[-1])
    spread = float(np.sqrt((last**2).sum()))
    if len(shares.in_window) < least_days or not spread > 0:
        return Verdict("calendar", UNKNOWN, UNKNOWN, UNKNOWN)
    return Verdict("calendar", found / spread, UNKNOWN, share_beyond(found, flipped[:, -1]))


def share_beyond(found: float, flipped: Floats) -> float:
    """Return p: the share of draws at least as far from 0, including the observed value."""
    beyond = np.abs(flipped) >= abs(found) * (1 - 1e-12)
    return float((1 + beyond.sum()) / (1 + len(flipped)))
