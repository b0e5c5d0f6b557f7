"""The figures of a study: the table by bar, the tests of the window, groups.

Belongs here: which tests are run on which values, the headline, false discovery control. Does not:
the tests themselves (parametric, ranks, calendar).
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from almanac.study.calendar import (
    block_bootstrap,
    blocks_of,
    calendar_test,
    flip_signs,
    share_beyond,
    shares_of_days,
)
from almanac.study.parametric import (
    UNKNOWN,
    Verdict,
    adjusted_bmp,
    bmp,
    cross_sectional,
    generalised_sign,
    mean_correlation,
    patell,
    two_way,
)
from almanac.study.prices import Floats
from almanac.study.ranks import grank
from almanac.study.returns import Returns
from almanac.study.weights import Weights, equal
from almanac.study.windows import Windows

Control = Literal["bh", "by"]
LEAST_DAYS: Final = 8
"""Calendar days in windows below which no signs are flipped: the headline is adjusted BMP then."""
LEAST_ROWS: Final = 5
"""Rows below which adjusted BMP is no headline either."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws of bootstraps, their seed, and the confidence of the band."""

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


def figures_of(
    returns: Returns,
    windows: Windows,
    options: Draws,
    bar_us: int,
    weights: Weights | None = None,
) -> Figures:
    """Return all figures of some rows; without weights they count the same."""
    weights = weights or equal(len(windows.zero))
    shares = shares_of_days(returns, windows, weights.scale)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    calendar = calendar_test("calendar", shares, flipped, LEAST_DAYS)
    values, scaled = windows.cumulated[:, -1], _scaled(windows)
    of_units, scaled_units = weights.of_units(values), weights.of_units(scaled)
    block = blocks_of(windows.zero[weights.first_rows()], windows.spans.length)
    correlation = mean_correlation(returns, windows, weights.unit)
    few_days = adjusted_bmp(scaled_units, correlation)
    day = returns.day[windows.zero]
    verdicts = [
        calendar,
        cross_sectional(of_units),
        patell(scaled, windows.degrees, weights.share),
        bmp(scaled_units),
        few_days,
        two_way(values, day, windows.coin, weights.share),
        block_bootstrap(of_units, block, rounds=options.rounds, seed=options.seed),
    ]
    if weights.unit is None:  # Ranks and signs are of rows alone.
        ranks = grank(returns, windows, scaled)
        verdicts[5:5] = [ranks, generalised_sign(values, windows.share_positive)]
    table = _table(windows, weights, flipped, options, bar_us)
    if not np.isfinite(calendar.p):
        _judge_few_days(table, windows, weights, correlation, options.confidence)
    headline = _headline(calendar, few_days, weights.units)
    return Figures(table, tuple(verdicts), headline, len(np.unique(day)))


def headline_of(
    returns: Returns, windows: Windows, options: Draws, weights: Weights | None = None
) -> Verdict:
    """Return the headline alone, as `figures_of` chooses it."""
    weights = weights or equal(len(windows.zero))
    shares = shares_of_days(returns, windows, weights.scale)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    calendar = calendar_test("calendar", shares, flipped, LEAST_DAYS)
    if np.isfinite(calendar.p):
        return calendar
    correlation = mean_correlation(returns, windows, weights.unit)
    few_days = adjusted_bmp(weights.of_units(_scaled(windows)), correlation)
    return _headline(calendar, few_days, weights.units)


def _headline(calendar: Verdict, few_days: Verdict, rows: int) -> Verdict:
    if np.isfinite(calendar.p):
        return calendar
    return few_days if rows >= LEAST_ROWS else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)


def naive_table(windows: Windows, bar_us: int, weights: Weights | None = None) -> pd.DataFrame:
    """Return n, AAR, CAAR and the plain t of the CAAR, by bar."""
    weights = weights or equal(len(windows.zero))
    cumulated = windows.cumulated
    plain = [
        cross_sectional(weights.of_units(cumulated[:, place]))
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


def adjusted(p: Floats, control: Control) -> Floats:
    """Return p adjusted for false discoveries; NaN stays NaN and is not counted.

    `bh` is Benjamini and Hochberg (1995), for independent or positively dependent tests; `by` is
    Benjamini and Yekutieli (2001), for any dependence.
    """
    found = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    tests = len(known)
    if tests == 0:
        return found
    order = known[np.argsort(p[known], kind="stable")]
    scale = (1.0 / np.arange(1, tests + 1)).sum() if control == "by" else 1.0
    raised = p[order] * scale * tests / np.arange(1, tests + 1)
    found[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return found


def _scaled(windows: Windows) -> Floats:
    found: Floats = windows.cumulated[:, -1] / np.sqrt(windows.variance_of_window())
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
    spread = np.sqrt(np.where(windows.live, windows.variance_of_bars(), 1.0))
    places = range(windows.spans.length)
    live = [windows.live[:, place] for place in places]
    scaled = windows.abnormal / spread
    is_any = windows.live.any(axis=0)
    aar_p = [share_beyond(step[place], flipped_step[:, place]) for place in places]
    caar_p = [share_beyond(caar[place], flipped[:, place]) for place in places]

    def units(values: Floats, place: int) -> Floats:
        return weights.of_units(values[:, place], live[place])

    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows.abnormal, windows, weights),
            "aar_t": [cross_sectional(units(windows.abnormal, p)).statistic for p in places],
            "aar_patell": [
                patell(scaled[on, p], windows.degrees[on], weights.share[on]).statistic
                for p, on in enumerate(live)
            ],
            "aar_bmp": [bmp(units(scaled, place)).statistic for place in places],
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
    """Replace p and band by those of adjusted BMP; the band is of the values as they are."""
    from scipy.special import stdtrit

    count = weights.units
    cumulated, spread = windows.cumulated, np.sqrt(windows.variance_of_sums())
    alone, of_bar = windows.abnormal, np.sqrt(windows.variance_of_bars())
    inflation = (1 + (count - 1) * correlation) / (1 - correlation)
    for place in range(windows.spans.length):
        live = windows.live[:, place]
        started = windows.live[:, : place + 1].any(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = weights.of_units(cumulated[:, place] / spread[:, place], started)
            bars = weights.of_units(alone[:, place] / of_bar[:, place], live)
        error, quantile = UNKNOWN, UNKNOWN
        if count >= LEAST_ROWS and inflation > 0:
            variance = weights.of_units(cumulated[:, place]).var(ddof=1)
            error = float(np.sqrt(variance / count * inflation))
            quantile = float(stdtrit(count - 1, (1 + confidence) / 2))
        caar = float(table.loc[place, "caar"])
        table.loc[place, "aar_p"] = adjusted_bmp(bars, correlation).p
        table.loc[place, "caar_p"] = adjusted_bmp(sums, correlation).p
        table.loc[place, "caar_low"] = caar - quantile * error
        table.loc[place, "caar_high"] = caar + quantile * error
