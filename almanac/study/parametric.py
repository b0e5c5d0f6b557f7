"""Tests over rows: cross-sectional t, Patell, BMP, adjusted BMP, sign, two-way clusters.

Each test takes one number a row (a cumulated abnormal return) and returns a `Verdict`. Belongs
here: formulas of the papers over plain arrays. Does not: ranks (ranks), days and blocks (calendar).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from almanac.study.prices import Floats, Integers
from almanac.study.returns import Returns
from almanac.study.windows import Fitted, Windows, residuals_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one test: two-sided p, NaN where the test can't be computed.

    `degrees` are those of Student's t; infinite for the normal, NaN for a bootstrap.
    """

    test: str
    statistic: float
    degrees: float
    p: float


UNKNOWN: Final = float("nan")
_DENSE: Final = 2
"""Up to so many bars for each bar with an event, every bar has a row."""


def student(test: str, statistic: float, degrees: float) -> Verdict:
    """Return the verdict of a statistic that is Student's t; infinite degrees are the normal."""
    from scipy.special import ndtr, stdtr

    if not np.isfinite(statistic) or not degrees > 0:
        return Verdict(test, UNKNOWN, degrees, UNKNOWN)
    beyond = ndtr(-abs(statistic)) if np.isinf(degrees) else stdtr(degrees, -abs(statistic))
    return Verdict(test, float(statistic), float(degrees), float(2 * beyond))


def cross_sectional(values: Floats) -> Verdict:
    """t of the mean over rows, as if they were independent (Brown and Warner 1985)."""
    return student("cross_sectional_t", _t(values), len(values) - 1)


def patell(scaled: Floats, degrees: Floats, share: Floats | None = None) -> Verdict:
    """Patell (1976): the sum of standardised values over the root of their variances.

    A standardised value is Student's t with d degrees, those of the residuals of its row: its
    variance is d/(d - 2). `share` weights the rows.
    """
    weight = np.ones(len(scaled)) if share is None else share
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (weight**2 * np.where(degrees > 2, degrees / (degrees - 2), np.nan)).sum()
        return student("patell", float((weight * scaled).sum() / np.sqrt(variance)), np.inf)


def bmp(scaled: Floats) -> Verdict:
    """Boehmer, Musumeci and Poulsen (1991): t of the mean of the standardised values."""
    return student("bmp", _t(scaled), len(scaled) - 1)


def adjusted_bmp(scaled: Floats, correlation: float) -> Verdict:
    """Kolari and Pynnönen (2010): BMP with the mean correlation of the rows.

    It is BMP times √((1 - r) / (1 + (n - 1) r)), r the mean over all pairs of rows.
    """
    rows = len(scaled)
    inflation = 1 + (rows - 1) * correlation
    if not inflation > 0 or correlation >= 1:
        return Verdict("adjusted_bmp", UNKNOWN, rows - 1, UNKNOWN)
    factor = np.sqrt((1 - correlation) / inflation)
    return student("adjusted_bmp", _t(scaled) * float(factor), rows - 1)


def generalised_sign(values: Floats, share_positive: Floats) -> Verdict:
    """Cowan (1992): positive values against the share of positive residuals before the events."""
    rows, expected = len(values), float(share_positive.mean()) if len(values) else UNKNOWN
    spread = np.sqrt(rows * expected * (1 - expected))
    if not spread > 0:
        return Verdict("sign", UNKNOWN, np.inf, UNKNOWN)
    return student("sign", float(((values > 0).sum() - rows * expected) / spread), np.inf)


def two_way(values: Floats, day: Integers, coin: Integers, share: Floats | None = None) -> Verdict:
    """t of the mean with errors clustered by calendar day and by coin; `share` weights the rows."""
    if len(values) < 2:
        return Verdict("clustered", UNKNOWN, UNKNOWN, UNKNOWN)
    weight = np.full(len(values), 1.0 / len(values)) if share is None else share
    mean = float(weight @ values)
    return clustered(mean, weight * (values - mean), day, coin)


def clustered(found: float, moved: Floats, day: Integers, coin: Integers) -> Verdict:
    """t of a weighted sum, `moved` being what the error of each row adds to it.

    Cameron, Gelbach and Miller (2011): the variances of both clusters, less that of their
    intersection; the larger of the two where the result is not positive. Degrees: the fewer
    clusters, less one.
    """
    both = np.unique(np.stack([day, coin]), axis=1, return_inverse=True)[1].ravel()
    (by_day, days), (by_coin, coins), (by_both, _) = (_cluster(moved, k) for k in (day, coin, both))
    variance = by_day + by_coin - by_both
    if not variance > 0:
        variance = max(by_day, by_coin)
    statistic = found / np.sqrt(variance) if variance > 0 else UNKNOWN
    return student("clustered", float(statistic), min(days, coins) - 1)


def mean_correlation(returns: Returns, windows: Windows, unit: Integers | None = None) -> float:
    """Return the mean correlation of the cumulated abnormal returns over all pairs of rows.

    Residuals of the estimation windows give the correlation of two rows on the same bars. Windows
    that overlap in part have that share of it (Kolari, Pape and Pynnönen 2018), others none. With
    `unit`, it is over all pairs of units, each the mean of the standardised rows of an event.
    """
    rows, length = len(windows.zero), windows.spans.length
    parts: Iterable[tuple[slice, Floats]]
    if unit is None:
        zero = windows.zero
        parts = ((part.rows, scaled) for part, scaled in _standardised(returns, windows))
    else:
        rows = int(unit.max(initial=-1)) + 1
        zero = windows.zero[np.unique(unit, return_index=True)[1]]
        means = np.zeros((rows, windows.spans.estimation))
        for part, scaled in _standardised(returns, windows):
            np.add.at(means, unit[part.rows], scaled)
        spread = np.sqrt((means**2).mean(axis=1, keepdims=True))
        parts = [(slice(0, rows), means / np.where(spread > 0, spread, 1.0))]
    if rows < 2:
        return UNKNOWN
    bars, group = np.unique(zero, return_inverse=True)
    sums = np.zeros((len(bars), windows.spans.estimation))
    own = 0.0
    for place, scaled in parts:
        starts = _starts(group[place])
        sums[group[place][starts]] += np.add.reduceat(scaled, starts, axis=0)
        own += float((scaled**2).mean(axis=1).sum())
    total = float((sums**2).mean(axis=1).sum()) - own
    every = range(int(bars[0]), int(bars[-1]) + 1)
    if length > 1 and len(every) < _DENSE * len(bars):
        # With a row for every bar, two bars apart are two slices, and nothing is copied.
        dense = np.zeros((len(every), windows.spans.estimation))
        dense[bars - bars[0]] = sums
        bars, sums = np.array(every), dense
    for apart in range(1, min(length, windows.spans.estimation)):
        total += 2 * _products(bars, sums, apart) * (length - apart) / length
    return total / (rows * (rows - 1))


def _standardised(returns: Returns, windows: Windows) -> Iterator[tuple[Fitted, Floats]]:
    for part in residuals_of(returns, windows):
        scale = np.sqrt((part.residuals**2).mean(axis=1, keepdims=True))
        yield part, part.residuals / scale


def _products(bars: Integers, sums: Floats, apart: int) -> float:
    """Return the sum of mean products of the sums of two bars that are so far apart."""
    common = sums.shape[1] - apart
    if bars[-1] - bars[0] + 1 == len(bars):
        first, second = sums[:-apart, apart:], sums[apart:, :common]
    else:
        after = np.minimum(np.searchsorted(bars, bars + apart), len(bars) - 1)
        is_pair = bars[after] == bars + apart
        first, second = sums[is_pair, apart:], sums[after[is_pair], :common]
    return float(np.einsum("ij,ij->", first, second).item() / common)


def _starts(groups: Any) -> Any:
    """Return where each run of equal numbers starts."""
    return np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))


def _t(values: Floats) -> float:
    if len(values) < 2:
        return UNKNOWN
    spread = values.std(ddof=1)
    return float(values.mean() / spread * np.sqrt(len(values))) if spread > 0 else UNKNOWN


def _cluster(moved: Floats, key: Integers) -> tuple[float, int]:
    sums = np.bincount(np.unique(key, return_inverse=True)[1].ravel(), weights=moved)
    clusters = len(sums)
    scale = clusters / (clusters - 1) if clusters > 1 else np.nan
    return float((sums**2).sum() * scale), clusters
