"""Estimates of a study: weights, mean returns by bar, tests, groups and their comparison."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from almanac.study.prices import Floats, Integers
from almanac.study.returns import Returns
from almanac.study.significance import (
    UNKNOWN,
    Verdict,
    adjusted_bmp,
    calendar_test,
    compute_day_shares,
    cross_sectional,
    flip_signs,
    grank,
    mean_correlation,
    share_beyond,
    student,
)
from almanac.study.windows import Windows

Weighting = Literal["rows", "events"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The share of each row in a mean.

    Attributes:
        share: of each row; they sum to 1.
        unit: the number of the unit of each row, from 0 on by first row: its event, or None if each
            row is a unit of its own. A unit counts as one observation.
    """

    share: Floats
    unit: Integers | None

    @property
    def units(self) -> int:
        return len(self.share) if self.unit is None else int(self.unit.max(initial=-1)) + 1

    @property
    def scale(self) -> Floats | None:
        """The shares divided by the share of equally weighted rows; None if they are equal."""
        return None if self.unit is None else self.share * len(self.share)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over rows, of each column if there are several."""
        if self.unit is None:
            equal: Floats = np.asarray(values.mean(axis=0)) if len(values) else np.asarray(np.nan)
            return equal
        return np.asarray(self.share @ values)

    def average_units(self, values: Floats, among: Any = None) -> Floats:
        """Return the mean of each unit over its rows; units without a row `among` are left out."""
        mine = slice(None) if among is None else among
        if self.unit is None:
            return values[mine]
        unit = self.unit[mine]
        count = np.bincount(unit, minlength=self.units)
        sums = np.bincount(unit, weights=values[mine], minlength=self.units)
        found: Floats = sums[count > 0] / count[count > 0]
        return found


def weigh_equally(count: int) -> Weights:
    return Weights(np.full(count, 1.0 / max(count, 1)), None)


def weigh(rows: pd.DataFrame, weighting: Weighting) -> Weights:
    if weighting == "rows":
        return weigh_equally(len(rows))
    unit = pd.factorize(rows["event_id"])[0].astype(np.int64)
    of_unit = np.bincount(unit)
    return Weights(1.0 / (of_unit[unit] * max(len(of_unit), 1)), unit)


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


def compute_figures(
    returns: Returns, windows: Windows, options: Draws, bar_us: int, weights: Weights | None = None
) -> Figures:
    """Return all estimates for some rows; without weights, rows count equally."""
    weights = weights or weigh_equally(len(windows.zero))
    calendar, flipped = _flip_days(returns, windows, options, weights)
    values, scaled = windows.cumulated[:, -1], _scaled(windows)
    of_units, scaled_units = weights.average_units(values), weights.average_units(scaled)
    correlation = mean_correlation(returns, windows, weights.unit)
    few_days = adjusted_bmp(scaled_units, correlation)
    day = returns.day[windows.zero]
    verdicts = [calendar, cross_sectional(of_units), few_days]
    if weights.unit is None:  # Ranks are of rows alone.
        verdicts.append(grank(returns, windows, scaled))
    table = _table(windows, weights, flipped, options, bar_us)
    if not np.isfinite(calendar.p):
        _judge_few_days(table, windows, weights, correlation, options.confidence)
    headline = _headline(calendar, few_days, weights.units)
    return Figures(table, tuple(verdicts), headline, len(np.unique(day)))


def compute_headline(
    returns: Returns, windows: Windows, options: Draws, weights: Weights | None = None
) -> Verdict:
    """Return the headline alone, as `compute_figures` chooses it."""
    weights = weights or weigh_equally(len(windows.zero))
    calendar, _ = _flip_days(returns, windows, options, weights)
    if np.isfinite(calendar.p):
        return calendar
    correlation = mean_correlation(returns, windows, weights.unit)
    few_days = adjusted_bmp(weights.average_units(_scaled(windows)), correlation)
    return _headline(calendar, few_days, weights.units)


def _flip_days(
    returns: Returns, windows: Windows, options: Draws, weights: Weights
) -> tuple[Verdict, Floats]:
    shares = compute_day_shares(returns, windows, weights.scale)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    return calendar_test(shares, flipped, LEAST_DAYS), flipped


def _headline(calendar: Verdict, few_days: Verdict, rows: int) -> Verdict:
    if np.isfinite(calendar.p):
        return calendar
    return few_days if rows >= LEAST_ROWS else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)


def make_naive_table(windows: Windows, bar_us: int, weights: Weights | None = None) -> pd.DataFrame:
    """Return n, AAR, CAAR and the plain t of the CAAR, by bar."""
    weights = weights or weigh_equally(len(windows.zero))
    cumulated = windows.cumulated
    plain = [
        cross_sectional(weights.average_units(cumulated[:, place]))
        for place in range(windows.spans.length)
    ]
    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows.abnormal, windows, weights),
            "caar": weights.mean(cumulated) if len(cumulated) else np.nan,
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


def _mean_live(values: Floats, windows: Windows, weights: Weights) -> Floats:
    live = weights.share @ windows.live
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(live > 0, weights.share @ (values * windows.live) / live, np.nan)


def _table(
    windows: Windows, weights: Weights, flipped: Floats, options: Draws, bar_us: int
) -> pd.DataFrame:
    caar = weights.mean(windows.cumulated)
    band = np.quantile(np.abs(flipped), options.confidence, axis=0)
    step = np.diff(caar, prepend=0.0)
    flipped_step = np.diff(flipped, prepend=0.0, axis=1)
    places = range(windows.spans.length)
    live = [windows.live[:, place] for place in places]
    is_any = windows.live.any(axis=0)
    aar_p = [share_beyond(step[place], flipped_step[:, place]) for place in places]
    caar_p = [share_beyond(caar[place], flipped[:, place]) for place in places]

    def units(values: Floats, place: int) -> Floats:
        return weights.average_units(values[:, place], live[place])

    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows.abnormal, windows, weights),
            "aar_t": [cross_sectional(units(windows.abnormal, p)).statistic for p in places],
            "aar_p": np.where(is_any, aar_p, np.nan),
            "caar": caar,
            "caar_low": caar - band,
            "caar_high": caar + band,
            "caar_p": np.where(np.cumsum(is_any) > 0, caar_p, np.nan),
            "bhar": weights.mean(windows.held),
        }
    )


def _judge_few_days(
    table: pd.DataFrame, windows: Windows, weights: Weights, correlation: float, confidence: float
) -> None:
    """Replace p and confidence band by values of the adjusted BMP test; the band is in units of
    returns."""
    from scipy.special import stdtrit

    count = weights.units
    cumulated, spread = windows.cumulated, np.sqrt(windows.variance_of_sums())
    alone, of_bar = windows.abnormal, np.sqrt(windows.variance_of_bars())
    inflation = (1 + (count - 1) * correlation) / (1 - correlation)
    for place in range(windows.spans.length):
        live = windows.live[:, place]
        started = windows.live[:, : place + 1].any(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = weights.average_units(cumulated[:, place] / spread[:, place], started)
            bars = weights.average_units(alone[:, place] / of_bar[:, place], live)
        error, quantile = UNKNOWN, UNKNOWN
        if count >= LEAST_ROWS and inflation > 0:
            variance = weights.average_units(cumulated[:, place]).var(ddof=1)
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
    """A selection of window rows, by index, with their weights."""

    name: str
    rows: Any
    weights: Weights
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
    return Comparison(
        difference=difference,
        low=difference - band,
        high=difference + band,
        headline=headline,
        tests=list_tests([verdict, _welch(windows, groups)], headline),
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


def _welch(windows: Windows, groups: tuple[Group, Group]) -> Verdict:
    """Welch's t, as if all units of both groups were independent."""
    means, squares, counts = [], [], []
    for group in groups:
        values = group.weights.average_units(windows.cumulated[group.rows, -1])
        means.append(float(values.mean()))
        squares.append(float(values.var(ddof=1)) / len(values) if len(values) > 1 else UNKNOWN)
        counts.append(len(values))
    total = sum(squares)
    if not total > 0:
        return Verdict("welch_t", UNKNOWN, UNKNOWN, UNKNOWN)
    under = sum(s**2 / (n - 1) for s, n in zip(squares, counts, strict=True))
    return student("welch_t", (means[0] - means[1]) / np.sqrt(total), total**2 / under)
