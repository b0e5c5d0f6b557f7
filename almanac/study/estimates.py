"""Estimates of a study: mean returns by bar, tests, groups and their comparison."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from almanac.study.prices import Floats
from almanac.study.returns import Returns
from almanac.study.significance import (
    UNKNOWN,
    Verdict,
    adjusted_bmp,
    calendar_test,
    compute_day_shares,
    cross_sectional,
    flip_signs,
    mean_correlation,
    share_beyond,
)
from almanac.study.windows import Windows

Control = Literal["bh", "by"]
LEAST_DAYS: Final = 8
"""Calendar days in windows below which no signs are flipped: the headline is adjusted BMP then."""
LEAST_ROWS: Final = 5
"""With fewer rows than this, adjusted BMP is not the headline either."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The number of bootstrap draws, their seed, and the confidence of the band."""

    rounds: int
    seed: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The table by bar, the verdicts of the window, and which of them is the headline."""

    table: pd.DataFrame
    verdicts: tuple[Verdict, ...]
    headline: Verdict
    days: int


def compute_figures(returns: Returns, windows: Windows, options: Draws, bar_us: int) -> Figures:
    """Return all estimates for some rows."""
    calendar, flipped = _flip_days(returns, windows, options)
    correlation = mean_correlation(returns, windows)
    few_days = adjusted_bmp(_scaled(windows), correlation)
    table = _table(windows, flipped, options, bar_us)
    if not np.isfinite(calendar.p):
        _judge_few_days(table, windows, correlation, options.confidence)
    verdicts = (calendar, cross_sectional(windows.cumulated[:, -1]), few_days)
    headline = _headline(calendar, few_days, len(windows.zero))
    return Figures(table, verdicts, headline, len(np.unique(returns.day[windows.zero])))


def compute_headline(returns: Returns, windows: Windows, options: Draws) -> Verdict:
    """Return the headline alone, as `compute_figures` chooses it."""
    calendar, _ = _flip_days(returns, windows, options)
    if np.isfinite(calendar.p):
        return calendar
    few_days = adjusted_bmp(_scaled(windows), mean_correlation(returns, windows))
    return _headline(calendar, few_days, len(windows.zero))


def _flip_days(returns: Returns, windows: Windows, options: Draws) -> tuple[Verdict, Floats]:
    shares = compute_day_shares(returns, windows)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    return calendar_test(shares, flipped, LEAST_DAYS), flipped


def _headline(calendar: Verdict, few_days: Verdict, rows: int) -> Verdict:
    if np.isfinite(calendar.p):
        return calendar
    return few_days if rows >= LEAST_ROWS else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)


def make_naive_table(windows: Windows, bar_us: int) -> pd.DataFrame:
    """Return n, AAR, CAAR and the plain t of the CAAR, by bar."""
    cumulated = windows.cumulated
    plain = [cross_sectional(cumulated[:, place]) for place in range(windows.spans.length)]
    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows),
            "caar": cumulated.mean(axis=0) if len(cumulated) else np.nan,
            "t": [verdict.statistic for verdict in plain],
            "p": [verdict.p for verdict in plain],
        }
    )


def adjust_p_values(p: Floats, control: Control) -> Floats:
    """Return p adjusted for false discoveries; NaN stays NaN and is not counted.

    `bh` is Benjamini and Hochberg (1995), for independent or positively dependent tests; `by` is
    Benjamini and Yekutieli (2001), for any dependence.
    """
    from scipy.stats import false_discovery_control

    found, known = np.full(len(p), np.nan), np.isfinite(p)
    if known.any():
        found[known] = false_discovery_control(p[known], method=control)
    return found


def _scaled(windows: Windows) -> Floats:
    found: Floats = windows.cumulated[:, -1] / np.sqrt(windows.variance_of_sums()[:, -1])
    return found


def _bars(windows: Windows, bar_us: int) -> dict[str, Any]:
    relative = windows.spans.relative
    return {
        "bar": relative,
        "offset": pd.to_timedelta(relative * bar_us, unit="us"),
        "n": windows.live.sum(axis=0),
    }


def _mean_live(windows: Windows) -> Floats:
    with np.errstate(invalid="ignore"):
        found: Floats = (windows.abnormal * windows.live).sum(axis=0) / windows.live.sum(axis=0)
    return found


def _table(windows: Windows, flipped: Floats, options: Draws, bar_us: int) -> pd.DataFrame:
    caar = windows.cumulated.mean(axis=0)
    band = np.quantile(np.abs(flipped), options.confidence, axis=0)
    step = np.diff(caar, prepend=0.0)
    flipped_step = np.diff(flipped, prepend=0.0, axis=1)
    places = range(windows.spans.length)
    live = [windows.live[:, place] for place in places]
    is_any = windows.live.any(axis=0)
    aar_p = [share_beyond(step[place], flipped_step[:, place]) for place in places]
    caar_p = [share_beyond(caar[place], flipped[:, place]) for place in places]

    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows),
            "aar_t": [cross_sectional(windows.abnormal[live[p], p]).statistic for p in places],
            "aar_p": np.where(is_any, aar_p, np.nan),
            "caar": caar,
            "caar_low": caar - band,
            "caar_high": caar + band,
            "caar_p": np.where(np.cumsum(is_any) > 0, caar_p, np.nan),
            "bhar": windows.held.mean(axis=0),
        }
    )


def _judge_few_days(
    table: pd.DataFrame, windows: Windows, correlation: float, confidence: float
) -> None:
    """Replace p and confidence band by values of the adjusted BMP test; the band is in units of
    returns."""
    from scipy.special import stdtrit

    count = len(windows.zero)
    cumulated, spread = windows.cumulated, np.sqrt(windows.variance_of_sums())
    alone, of_bar = windows.abnormal, np.sqrt(windows.variance_of_bars())
    inflation = (1 + (count - 1) * correlation) / (1 - correlation)
    for place in range(windows.spans.length):
        live = windows.live[:, place]
        started = windows.live[:, : place + 1].any(axis=1)
        sums = cumulated[started, place] / spread[started, place]
        bars = alone[live, place] / of_bar[live, place]
        error, quantile = UNKNOWN, UNKNOWN
        if count >= LEAST_ROWS and inflation > 0:
            variance = cumulated[:, place].var(ddof=1)
            error = float(np.sqrt(variance / count * inflation))
            quantile = float(stdtrit(count - 1, (1 + confidence) / 2))
        caar = float(table.loc[place, "caar"])
        table.loc[place, "aar_p"] = adjusted_bmp(bars, correlation).p
        table.loc[place, "caar_p"] = adjusted_bmp(sums, correlation).p
        table.loc[place, "caar_low"] = caar - quantile * error
        table.loc[place, "caar_high"] = caar + quantile * error


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The difference between two groups; made by `Study.compare`.

    Attributes:
        difference: CAAR of the first group minus the second group's, a fraction.
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
        verdict = p if np.isfinite(self.headline.p) else "too few days for a reliable test"
        return (
            f"{names}: {self.difference:+.2%}{band}; {verdict}\n\n"
            f"{self.groups.to_string(index=False)}\n\n{self.tests.to_string(index=False)}"
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A selection of window rows, by index."""

    name: str
    rows: Any
    events: int


def compare_groups(
    returns: Returns, windows: Windows, first: Group, second: Group, options: Draws
) -> Comparison:
    """Return the difference between the mean cumulated abnormal returns of two groups.

    `calendar`: without a difference, both groups have the mean of all their rows. Less that mean of
    each bar, what a day adds to the difference is as often above zero as below it: it gets a random
    sign, as in the test of one mean. A row in both groups counts with the difference of its two
    weights.
    """
    groups = (first, second)
    shares = np.zeros((2, len(windows.zero)))
    for place, group in enumerate(groups):
        shares[place, group.rows] = 1.0 / len(group.rows)
    counts = [len(group.rows) for group in groups]
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
    return Comparison(
        difference=difference,
        low=difference - band,
        high=difference + band,
        headline=headline,
        tests=list_tests([verdict], headline),
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


def list_tests(verdicts: Sequence[Verdict], headline: Verdict) -> pd.DataFrame:
    """Return one row per test, and whether it is the headline."""
    table = pd.DataFrame(list(map(asdict, verdicts)))
    return table.assign(is_headline=table["test"] == headline.test)


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
    shares = compute_day_shares(returns, centred, net * len(net))
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
