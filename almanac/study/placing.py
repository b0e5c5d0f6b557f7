"""The rows of a study on the bars of the prices, and why a row can't be used.

Belongs here: bar 0, the first bar after entry, and the rules for missing prices. Does not: which
events are known (selection), the fit (windows).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from almanac.study.prices import Floats, Integers, Prices
from almanac.study.returns import Model, Returns, span_of
from almanac.study.windows import Spans, Windows, fit

REASONS: Final = {
    "known_too_late": "known before its date, but not yet at the date less the lead",
    "known_after_the_date": "first known with this date when the date was over",
    "date_not_exact": "known with a period or a deadline, and never with an exact date in time",
    "changed_before_entry": "another date, or other values, replaced it before its entry",
    "entry_to_come": "its entry is still to come",
    "cancelled_at_entry": "cancelled by then",
    "withdrawn_at_entry": "withdrawn by then",
    "missing_at_entry": "missing from complete pulls by then",
    "coin_without_prices": "its coin has no prices",
    "ambiguous_coin": "its name, or that in the prices, is the ticker of several coins",
    "unknown_coin": "no coin has its name",
    "before_prices": "its estimation window begins before the prices",
    "after_prices": "its window ends after the prices",
    "entry_after_window": "its window is over before the first bar after entry",
    "not_trading_at_entry": "its coin has no price at entry, or only after it",
    "gap_in_window": "its coin lacks prices for more bars in the window than are carried",
    "redenomination": "its prices step by a power of ten in the window, as in a redenomination",
    "market_missing": "the market has no price in the window",
    "short_estimation": "its coin has too few returns in the estimation window",
    "no_variance": "its coin, or the market, does not move in the estimation window",
}
"""Why an event, or one of its coins, is not in the study."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows that are used, in the order of their bar 0, and the reasons of the others."""

    windows: Windows
    rows: pd.DataFrame
    excluded: pd.DataFrame


def place(
    prices: Prices,
    returns: Returns,
    rows: pd.DataFrame,
    spans: Spans,
    model: Model,
    *,
    from_entry: bool,
) -> Placed:
    """Return the windows of the rows; without `from_entry` every bar of a window counts."""
    date, entry = (rows[n].to_numpy("datetime64[us]").astype(np.int64) for n in ("date", "entry"))
    coin = rows["column"].to_numpy(np.int64)
    zero = prices.bar_of(date)
    enters = _entered(prices, returns, entry, coin) if from_entry else np.zeros_like(zero)
    reason = _reasons(returns, zero, enters, coin, spans, model)
    order = np.argsort(zero, kind="stable")
    order = order[pd.isna(reason[order])]
    windows, usable = fit(returns, zero[order], coin[order], enters[order], spans, model)
    out = order[~usable]
    reason[out] = np.where(
        _returns_in(returns, zero, coin, spans, out) < spans.least,
        "short_estimation",
        "no_variance",
    )
    kept = order[usable]
    excluded = rows.assign(reason=reason)[["event_id", "coin", "title", "date", "reason"]]
    table = rows.iloc[kept].reset_index(drop=True).drop(columns="column")
    return Placed(
        windows, _with_results(table, prices, returns, windows), excluded[~pd.isna(reason)]
    )


def _entered(prices: Prices, returns: Returns, entry: Integers, coin: Integers) -> Integers:
    """Return the first bar of each row whose return is from a price of its entry or later.

    It is the next bar, from its open or from the close before it. If the coin lacks both, the
    price that is carried over the gap was before the entry: the return of the bar after the gap
    began before the event was known, so the row begins a bar later.
    """
    enters = prices.next_bar(entry)
    inside = np.flatnonzero((enters > 0) & (enters < returns.bars))
    bar, of = enters[inside], coin[inside]
    is_old = np.isnan(prices.close[bar - 1, of]) & np.isfinite(returns.carried[of, bar])
    if returns.from_open is not None:
        is_old &= np.isnan(returns.from_open[of, bar])
    late = inside[is_old]
    while len(late):
        # The first price after the entry; a gap that is carried has a price at its end.
        has_price = np.isfinite(prices.close[enters[late], coin[late]])
        enters[late] += 1
        late = late[~has_price]
    return enters


def _reasons(
    returns: Returns, zero: Integers, enters: Integers, coin: Integers, spans: Spans, model: Model
) -> Any:
    reason = np.full(len(zero), None, dtype=object)
    first = np.maximum(enters, zero + spans.first)
    end = zero + spans.last
    before = (zero < 0) | (zero + spans.fitted[0] < 0) | (zero + spans.first < 1)
    after = ~before & (end >= returns.bars)
    late = ~before & ~after & (first > end)
    reason[before], reason[after] = "before_prices", "after_prices"
    reason[late] = "entry_after_window"
    rows = np.flatnonzero(~before & ~after & ~late)
    bars = zero[rows, None] + spans.relative
    wanted = (bars >= first[rows, None]) & (bars <= returns.last[coin[rows], None])
    start = zero[rows] + spans.first
    has = np.isfinite(span_of(returns.carried, coin[rows], start, spans.length))
    at_entry = np.isfinite(returns.carried[coin[rows], first[rows]])
    gap = (wanted & ~has).any(axis=1)
    no_market: Any = np.zeros(len(rows), dtype=bool)
    if model == "market":
        beside = np.isfinite(returns.market_of(coin[rows], start, spans.length))
        no_market = (wanted & ~beside).any(axis=1)
    reason[rows[no_market]] = "market_missing"
    reason[rows[gap]] = "gap_in_window"
    reason[rows[~at_entry]] = "not_trading_at_entry"
    stepped = wanted & (span_of(returns.steps, coin[rows], start, spans.length) != 0)
    # Without the steps there is no return; with them, the row is used.
    reason[rows[(stepped & ~has).any(axis=1)]] = "redenomination"
    return reason


def _returns_in(
    returns: Returns, zero: Integers, coin: Integers, spans: Spans, rows: Integers
) -> Integers:
    first = zero[rows] + spans.fitted[0]
    own = span_of(returns.strict, coin[rows], first, spans.estimation)
    return np.asarray(np.isfinite(own).sum(axis=1))


def _with_results(
    rows: pd.DataFrame, prices: Prices, returns: Returns, windows: Windows
) -> pd.DataFrame:
    cumulated: Floats = windows.cumulated[:, -1] if len(rows) else np.zeros(0)
    variance = windows.variance_of_window() if len(rows) else np.ones(0)
    live: Any = windows.live
    first = windows.zero + windows.spans.first + live.argmax(axis=1)
    start, length = windows.zero + windows.spans.first, windows.spans.length
    stepped = live & (span_of(returns.steps, windows.coin, start, length) != 0)
    starts = pd.to_datetime(prices.starts, unit="us", utc=True)
    return rows.assign(
        bar_zero=starts[windows.zero],
        first_bar=starts[first],
        bars=live.sum(axis=1),
        alpha=windows.alpha,
        beta=windows.beta,
        residual_sd=windows.sd,
        fitted_on=windows.fitted_on.astype(np.int64),
        car=cumulated,
        scar=cumulated / np.sqrt(variance),
        bhar=windows.held[:, -1] if len(rows) else np.zeros(0),
        delisted_in_window=~live[:, -1] if len(rows) else np.zeros(0, dtype=bool),
        redenomination_in_window=stepped.any(axis=1) if len(rows) else np.zeros(0, dtype=bool),
    )
