"""Estimates of a study: mean returns by bar, and tests."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from almanac.study.prices import Floats
from almanac.study.returns import Returns
from almanac.study.significance import (
    UNKNOWN,
    Verdict,
    calendar_test,
    compute_day_shares,
    cross_sectional,
    flip_signs,
    share_beyond,
)
from almanac.study.windows import Windows

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
