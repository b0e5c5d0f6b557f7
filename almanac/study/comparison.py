"""A test of the difference between the means of two groups of rows.

Belongs here: which days and rows the difference is made of. Does not: which rows are in a group
(study), tests of one mean (calendar, parametric).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from almanac.study.calendar import flip_signs, share_beyond, shares_of_days
from almanac.study.parametric import UNKNOWN, Verdict, clustered, student
from almanac.study.prices import Floats
from almanac.study.results import LEAST_DAYS, Draws
from almanac.study.returns import Returns
from almanac.study.weights import Weights
from almanac.study.windows import Windows


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The difference between two groups; made by `Study.compare`.

    Attributes:
        difference: CAAR of the first group less that of the second, a fraction.
        low, high: its band; NaN without a headline.
        headline: the test to rely on, a `Verdict`; `none` with p NaN if there are too few days.
        tests: one row per test: `test`, `statistic`, `degrees`, `p`, `is_headline`.
        groups: one row per group: `group`, `n`, `events`, `days`, `caar`.
    """

    difference: float
    low: float
    high: float
    headline: Verdict
    tests: pd.DataFrame
    groups: pd.DataFrame

    def __repr__(self) -> str:
        band = f" (band {self.low:+.2%} to {self.high:+.2%})" if np.isfinite(self.low) else ""
        names = " less ".join(str(name) for name in self.groups["group"])
        p = f"{self.headline.test} p = {self.headline.p:.3f}"
        verdict = p if np.isfinite(self.headline.p) else "too few days for a test that holds"
        return (
            f"{names}: {self.difference:+.2%}{band}; {verdict}\n\n"
            f"{self.groups.to_string(index=False)}\n\n{self.tests.to_string(index=False)}"
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Some rows of the windows, by their places, with their weights."""

    name: str
    rows: Any
    weights: Weights
    events: int


def compared(
    returns: Returns, windows: Windows, first: Group, second: Group, options: Draws
) -> Comparison:
    """Return the difference between the mean cumulated abnormal returns of two groups.

    `calendar`: without a difference, both groups have the mean of all their rows. Less that mean of
    each bar, what a day adds to the difference is as often above zero as below it: it gets a random
    sign, as in the test of one mean. A row in both groups counts by the difference of its weights.
    """
    groups = (first, second)
    shares = np.zeros((2, len(windows.zero)))
    for place, group in enumerate(groups):
        shares[place, group.rows] = group.weights.share
    counts = [group.weights.units for group in groups]
    pooled = (counts[0] * shares[0] + counts[1] * shares[1]) / sum(counts)
    net = shares[0] - shares[1]
    mine = np.flatnonzero(pooled > 0)
    part = windows.subset(mine)
    net, pooled = net[mine], pooled[mine]
    difference = float(net @ part.cumulated[:, -1])
    verdict, band = _calendar(returns, part, net, pooled, difference, options)
    days = [_days_of(returns, windows, group) for group in groups]
    headline = verdict if min(days) >= LEAST_DAYS else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)
    if np.isnan(headline.p):
        headline, band = Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN), UNKNOWN
    tests = (verdict, _clustered(returns, windows, groups), _welch(windows, groups))
    return Comparison(
        difference=difference,
        low=difference - band,
        high=difference + band,
        headline=headline,
        tests=pd.DataFrame(
            {
                "test": [test.test for test in tests],
                "statistic": [test.statistic for test in tests],
                "degrees": [test.degrees for test in tests],
                "p": [test.p for test in tests],
                "is_headline": [test.test == headline.test for test in tests],
            }
        ),
        groups=pd.DataFrame(
            {
                "group": [group.name for group in groups],
                "n": [len(group.rows) for group in groups],
                "events": [group.events for group in groups],
                "days": [len(np.unique(returns.day[windows.zero[g.rows]])) for g in groups],
                "caar": [float(share @ windows.cumulated[:, -1]) for share in shares],
            }
        ),
    )


def _calendar(
    returns: Returns,
    windows: Windows,
    net: Floats,
    pooled: Floats,
    difference: float,
    options: Draws,
) -> tuple[Verdict, float]:
    live = pooled @ windows.live
    mean = np.divide(pooled @ windows.abnormal, live, out=np.zeros(len(live)), where=live > 0)
    # The mean of few days is near to these days: what is left is too small by this factor.
    days = len(np.unique(returns.day[windows.zero]))
    lost = np.sqrt(days / (days - 1)) if days > 1 else 1.0
    centred = replace(windows, abnormal=np.where(windows.live, windows.abnormal - mean, 0.0))
    shares = shares_of_days(returns, centred, net * len(net))
    flipped = lost * flip_signs(shares, rounds=options.rounds, seed=options.seed)[:, -1]
    spread = float(lost * np.sqrt((shares.values[:, -1] ** 2).sum()))
    if not spread > 0:
        return Verdict("calendar", UNKNOWN, UNKNOWN, UNKNOWN), UNKNOWN
    p = share_beyond(difference, flipped)
    band = float(np.quantile(np.abs(flipped), options.confidence))
    return Verdict("calendar", difference / spread, UNKNOWN, p), band


def _days_of(returns: Returns, windows: Windows, group: Group) -> int:
    bars = windows.zero[group.rows, None] + windows.spans.relative
    return len(np.unique(returns.day[bars[windows.live[group.rows]]]))


def _clustered(returns: Returns, windows: Windows, groups: tuple[Group, Group]) -> Verdict:
    """t of the difference with errors clustered by the day of the event and by coin."""
    values, moved = windows.cumulated[:, -1], np.zeros(len(windows.zero))
    means = []
    for sign, group in zip((1.0, -1.0), groups, strict=True):
        mean = float(group.weights.share @ values[group.rows])
        moved[group.rows] += sign * group.weights.share * (values[group.rows] - mean)
        means.append(mean)
    mine = np.union1d(groups[0].rows, groups[1].rows)
    day = returns.day[windows.zero[mine]]
    return clustered(means[0] - means[1], moved[mine], day, windows.coin[mine])


def _welch(windows: Windows, groups: tuple[Group, Group]) -> Verdict:
    """Welch's t, as if all units of both groups were independent."""
    means, squares, counts = [], [], []
    for group in groups:
        values = group.weights.of_units(windows.cumulated[group.rows, -1])
        means.append(float(values.mean()))
        squares.append(float(values.var(ddof=1)) / len(values) if len(values) > 1 else UNKNOWN)
        counts.append(len(values))
    total = sum(squares)
    if not total > 0:
        return Verdict("welch_t", UNKNOWN, UNKNOWN, UNKNOWN)
    under = sum(s**2 / (n - 1) for s, n in zip(squares, counts, strict=True))
    return student("welch_t", (means[0] - means[1]) / np.sqrt(total), total**2 / under)
