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


def figures_of(returns: Returns, windows: Windows, options: Draws, bar_us: int) -> Figures:
    """Return all figures of some rows."""
    shares = shares_of_days(returns, windows)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    calendar = calendar_test("calendar", shares, flipped, LEAST_DAYS)
    values, scaled = windows.cumulated[:, -1], _scaled(windows)
    block = blocks_of(windows.zero, windows.spans.length)
    correlation = mean_correlation(returns, windows)
    few_days = adjusted_bmp(scaled, correlation)
    verdicts = (
        calendar,
        cross_sectional(values),
        patell(scaled, windows.degrees),
        bmp(scaled),
        few_days,
        grank(returns, windows, scaled),
        generalised_sign(values, windows.share_positive),
        two_way(values, returns.day[windows.zero], windows.coin),
        block_bootstrap(values, block, rounds=options.rounds, seed=options.seed),
    )
    table = _table(windows, flipped, options, bar_us)
    if not np.isfinite(calendar.p):
        _judge_few_days(table, windows, correlation, options.confidence)
    headline = _headline(calendar, few_days, len(values))
    return Figures(table, verdicts, headline, len(np.unique(returns.day[windows.zero])))


def headline_of(returns: Returns, windows: Windows, options: Draws) -> Verdict:
    """Return the headline alone, as `figures_of` chooses it."""
    shares = shares_of_days(returns, windows)
    flipped = flip_signs(shares, rounds=options.rounds, seed=options.seed)
    calendar = calendar_test("calendar", shares, flipped, LEAST_DAYS)
    if np.isfinite(calendar.p):
        return calendar
    few_days = adjusted_bmp(_scaled(windows), mean_correlation(returns, windows))
    return _headline(calendar, few_days, len(windows.zero))


def _headline(calendar: Verdict, few_days: Verdict, rows: int) -> Verdict:
    if np.isfinite(calendar.p):
        return calendar
    return few_days if rows >= LEAST_ROWS else Verdict("none", UNKNOWN, UNKNOWN, UNKNOWN)


def naive_table(windows: Windows, bar_us: int) -> pd.DataFrame:
    """Return n, AAR, CAAR and the plain t of the CAAR, by bar."""
    cumulated = windows.cumulated
    plain = [cross_sectional(cumulated[:, place]) for place in range(windows.spans.length)]
    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows.abnormal, windows),
            "caar": cumulated.mean(axis=0) if len(cumulated) else np.nan,
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


def _mean_live(values: Floats, windows: Windows) -> Floats:
    count = windows.live.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, (values * windows.live).sum(axis=0) / count, np.nan)


def _table(windows: Windows, flipped: Floats, options: Draws, bar_us: int) -> pd.DataFrame:
    caar = windows.cumulated.mean(axis=0)
    band = np.quantile(np.abs(flipped), options.confidence, axis=0)
    step = np.diff(caar, prepend=0.0)
    flipped_step = np.diff(flipped, prepend=0.0, axis=1)
    spread = np.sqrt(np.where(windows.live, windows.variance_of_bars(), 1.0))
    places = range(windows.spans.length)
    live = [windows.live[:, place] for place in places]
    bars = [windows.abnormal[live[place], place] for place in places]
    scaled = [bars[place] / spread[live[place], place] for place in places]
    is_any = windows.live.any(axis=0)
    aar_p = [share_beyond(step[place], flipped_step[:, place]) for place in places]
    caar_p = [share_beyond(caar[place], flipped[:, place]) for place in places]
    return pd.DataFrame(
        {
            **_bars(windows, bar_us),
            "aar": _mean_live(windows.abnormal, windows),
            "aar_t": [cross_sectional(values).statistic for values in bars],
            "aar_patell": [
                patell(values, windows.degrees[live[place]]).statistic
                for place, values in enumerate(scaled)
            ],
            "aar_bmp": [bmp(values).statistic for values in scaled],
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
    """Replace p and band by those of adjusted BMP; the band is of the values as they are."""
    from scipy.special import stdtrit

    rows = len(windows.zero)
    cumulated, spread = windows.cumulated, np.sqrt(windows.variance_of_sums())
    alone, of_bar = windows.abnormal, np.sqrt(windows.variance_of_bars())
    inflation = (1 + (rows - 1) * correlation) / (1 - correlation)
    for place in range(windows.spans.length):
        live = windows.live[:, place]
        started = windows.live[:, : place + 1].any(axis=1)
        sums = cumulated[started, place] / spread[started, place]
        bars = alone[live, place] / of_bar[live, place]
        error, quantile = UNKNOWN, UNKNOWN
        if rows >= LEAST_ROWS and inflation > 0:
            error = float(np.sqrt(cumulated[:, place].var(ddof=1) / rows * inflation))
            quantile = float(stdtrit(rows - 1, (1 + confidence) / 2))
        caar = float(table.loc[place, "caar"])
        table.loc[place, "aar_p"] = adjusted_bmp(bars, correlation).p
        table.loc[place, "caar_p"] = adjusted_bmp(sums, correlation).p
        table.loc[place, "caar_low"] = caar - quantile * error
        table.loc[place, "caar_high"] = caar + quantile * error
