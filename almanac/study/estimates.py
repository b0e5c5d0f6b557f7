"""Estimates of a study: mean returns by bar, and tests, parametric and in calendar time.

A parametric test takes one number a row (a cumulated abnormal return) and returns a `Verdict`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

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


Control = Literal["bh", "by"]
LEAST_DAYS: Final = 8
"""Calendar days in windows below which no signs are flipped: there is no headline then."""


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
    table = _table(windows, flipped, options, bar_us)
    if not np.isfinite(calendar.p):
        table[["aar_p", "caar_p", "caar_low", "caar_high"]] = np.nan
    verdicts = (calendar, cross_sectional(windows.cumulated[:, -1]))
    days = len(np.unique(returns.day[windows.zero]))
    return Figures(table, verdicts, _headline(calendar), days)


def compute_headline(returns: Returns, windows: Windows, options: Draws) -> Verdict:
    """Return the headline alone, as `compute_figures` chooses it."""
    return _headline(_flip_days(returns, windows, options)[0])


def _flip_days(returns: Returns, windows: Windows, options: Draws) -> tuple[Verdict, Floats]:
    shares = compute_day_shares(returns, windows)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    return calendar_test(shares, flipped, LEAST_DAYS), flipped


def _headline(calendar: Verdict) -> Verdict:
    is_known = np.isfinite(calendar.p)
    return calendar if is_known else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)


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


def list_tests(verdicts: Sequence[Verdict], headline: Verdict) -> pd.DataFrame:
    """Return one row per test, and whether it is the headline."""
    table = pd.DataFrame(list(map(asdict, verdicts)))
    return table.assign(is_headline=table["test"] == headline.test)
