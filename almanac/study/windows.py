"""Estimation windows and event windows of a study: models, abnormal returns, excluded rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from almanac.study.options import Model
from almanac.study.prices import Floats, Integers, Prices
from almanac.study.returns import Returns, compound, take_bars

Booleans = np.ndarray[Any, np.dtype[np.bool_]]
CHUNK: Final = 2_048
"""Rows whose estimation windows are in memory together."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The cumulated and the fitted bars, counted from the event's bar (bar 0).

    Attributes:
        first, last: the window, both included.
        estimation: the bars of the estimation window.
        gap: the bars between the estimation window and the window.
        least: the fewest returns that a model is fitted on.
    """

    first: int
    last: int
    estimation: int
    gap: int
    least: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    @property
    def relative(self) -> Integers:
        return np.arange(self.first, self.last + 1)

    @property
    def fitted(self) -> Integers:
        """The bars of the estimation window, from bar 0."""
        end = self.first - self.gap
        return np.arange(end - self.estimation, end)


@dataclass(frozen=True, slots=True)
class Windows:
    """Abnormal returns of rows, in the order of their bar 0.

    Attributes:
        zero, coin, entry: the bar 0, the column, and the first bar that could be traded.
        abnormal: abnormal returns, 0 where `live` is false.
        live: whether a bar counts: from the entry until the coin's last price.
        market: the market's returns less their mean in the estimation window, 0 where not live.
        held: buy-and-hold abnormal returns, up to each bar.
        fitted_on: returns that the model was fitted on.
        sd: the standard deviation of its residuals.
        market_squares: the sum of squares of the market's returns about their mean there.
        alpha, beta: the parameters; beta is 0 in the mean model.
    """

    model: Model
    spans: Spans
    zero: Integers
    coin: Integers
    entry: Integers
    abnormal: Floats
    live: Booleans
    market: Floats
    held: Floats
    fitted_on: Floats
    sd: Floats
    market_squares: Floats
    alpha: Floats
    beta: Floats

    @property
    def cumulated(self) -> Floats:
        """The cumulated abnormal return of each row up to each bar."""
        summed: Floats = np.cumsum(self.abnormal, axis=1)
        return summed

    def subset(self, rows: Any) -> "Windows":
        """Return some of the rows, in the same order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _ARRAYS})


_ARRAYS: Final = [name for name in Windows.__slots__ if name not in ("model", "spans")]


@dataclass(frozen=True, slots=True)
class EstimationRows:
    """Estimation windows of some rows: residuals and the market less its mean, 0 if no return."""

    rows: slice
    residuals: Floats
    market: Floats
    has: Booleans


def fit_windows(
    returns: Returns, zero: Integers, coin: Integers, entry: Integers, spans: Spans, model: Model
) -> tuple[Windows, Booleans]:
    """Return the windows of the rows that can be used, and for each row given whether it is.

    The rows must be in the order of `zero`. The caller has checked that both windows lie within the
    bars. A row is not used if its model has fewer returns than `spans.least`, or no variance.
    """
    parts = [
        _fit(returns, zero[rows], coin[rows], entry[rows], spans, model)
        for rows in _chunks(len(zero))
    ]
    whole = parts[0] if parts else _fit(returns, zero, coin, entry, spans, model)
    if len(parts) > 1:
        joined: Any = {n: np.concatenate([getattr(part, n) for part in parts]) for n in _ARRAYS}
        whole = replace(whole, **joined)
    usable = (whole.fitted_on >= spans.least) & (whole.sd > 0) & np.isfinite(whole.sd)
    if model == "market":
        usable &= whole.market_squares > 0
    return whole if usable.all() else whole.subset(usable), usable


def compute_residuals(returns: Returns, windows: Windows) -> Iterator[EstimationRows]:
    for rows in _chunks(len(windows.zero)):
        own, market, has = _estimation(
            returns, windows.zero[rows], windows.coin[rows], windows.spans, windows.model
        )
        alpha, beta = windows.alpha[rows, None], windows.beta[rows, None]
        centred = np.where(has, market - _mean(market, has)[:, None], 0.0)
        yield EstimationRows(rows, np.where(has, own - alpha - beta * market, 0.0), centred, has)


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK):
        yield slice(start, min(start + CHUNK, rows))


def _estimation(
    returns: Returns, zero: Integers, coin: Integers, spans: Spans, model: Model
) -> tuple[Floats, Floats, Booleans]:
    first = zero + spans.fitted[0]
    own = take_bars(returns.strict, coin, first, spans.estimation)
    has = np.isfinite(own)
    if model == "mean":
        return np.where(has, own, 0.0), np.zeros_like(own), has
    market = returns.take_market(coin, first, spans.estimation)
    has &= np.isfinite(market)
    return np.where(has, own, 0.0), np.where(has, market, 0.0), has


def _mean(values: Floats, has: Booleans) -> Floats:
    found: Floats = (values * has).sum(axis=1) / np.maximum(has.sum(axis=1), 1)
    return found


def _fit(
    returns: Returns, zero: Integers, coin: Integers, entry: Integers, spans: Spans, model: Model
) -> Windows:
    own, market, has = _estimation(returns, zero, coin, spans, model)
    count = has.sum(axis=1).astype(np.float64)
    own_mean, market_mean = _mean(own, has), _mean(market, has)
    own_off = np.where(has, own - own_mean[:, None], 0.0)
    market_off = np.where(has, market - market_mean[:, None], 0.0)
    squares = (market_off**2).sum(axis=1)
    # A market that does not move says nothing of beta; such rows are not used.
    moves = squares > 1e-24
    beta = np.where(moves, (own_off * market_off).sum(axis=1) / np.where(moves, squares, 1.0), 0.0)
    residuals = np.where(has, own_off - beta[:, None] * market_off, 0.0)
    degrees = count - (2 if model == "market" else 1)
    alpha = own_mean - beta * market_mean
    sd = np.sqrt((residuals**2).sum(axis=1) / np.maximum(degrees, 1.0))
    # What is left of a coin that never moves, or moves as the market, is rounding.
    sd = np.where(sd > 1e-12 * np.maximum(1.0, np.abs(own).max(axis=1, initial=0.0)), sd, 0.0)

    first, bars = zero + spans.first, zero[:, None] + spans.relative
    moved = take_bars(returns.carried, coin, first, spans.length)
    if returns.from_open is not None:
        is_entry = bars == entry[:, None]
        opened = take_bars(returns.from_open, coin, first, spans.length)
        moved = np.where(is_entry & np.isfinite(opened), opened, moved)
    beside = np.zeros_like(moved)
    if model == "market":
        beside = returns.take_market(coin, first, spans.length)
    live = (bars >= entry[:, None]) & np.isfinite(moved) & np.isfinite(beside)
    expected = np.where(live, alpha[:, None] + beta[:, None] * beside, 0.0)
    moved = np.where(live, moved, 0.0)
    return Windows(
        model=model,
        spans=spans,
        zero=zero,
        coin=coin,
        entry=entry,
        abnormal=moved - expected,
        live=live,
        market=np.where(live, beside - market_mean[:, None], 0.0),
        held=compound(moved, returns.kind) - compound(expected, returns.kind),
        fitted_on=count,
        sd=sd,
        market_squares=np.where(moves, squares, 0.0),
        alpha=alpha,
        beta=beta,
    )


REASONS: Final = {
    "known_too_late": "known before its date, but only after the entry (date minus lead)",
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
"""The reasons why an event, or one of its coins, is not in the study."""


@dataclass(frozen=True, slots=True)
class StudyRows:
    """The used rows, in the order of their bar 0, and the reasons why other rows are not used."""

    windows: Windows
    rows: pd.DataFrame
    excluded: pd.DataFrame


def make_study_rows(
    prices: Prices,
    returns: Returns,
    rows: pd.DataFrame,
    spans: Spans,
    model: Model,
    *,
    from_entry: bool,
) -> StudyRows:
    """Return the windows of the rows; without `from_entry` every bar of a window counts."""
    date, entry = (rows[n].to_numpy("datetime64[us]").astype(np.int64) for n in ("date", "entry"))
    coin = rows["column"].to_numpy(np.int64)
    zero = prices.find_bars(date)
    enters = _find_entries(prices, returns, entry, coin) if from_entry else np.zeros_like(zero)
    reason = _reasons(returns, zero, enters, coin, spans, model)
    order = np.argsort(zero, kind="stable")
    order = order[pd.isna(reason[order])]
    windows, usable = fit_windows(returns, zero[order], coin[order], enters[order], spans, model)
    out = order[~usable]
    own = take_bars(returns.strict, coin[out], zero[out] + spans.fitted[0], spans.estimation)
    is_short = np.isfinite(own).sum(axis=1) < spans.least
    reason[out] = np.where(is_short, "short_estimation", "no_variance")
    kept = order[usable]
    excluded = rows.assign(reason=reason)[["event_id", "coin", "title", "date", "reason"]]
    table = rows.iloc[kept].reset_index(drop=True).drop(columns="column")
    return StudyRows(
        windows, _with_results(table, prices, returns, windows), excluded[~pd.isna(reason)]
    )


def _find_entries(prices: Prices, returns: Returns, entry: Integers, coin: Integers) -> Integers:
    """Return the first bar of each row whose return is from a price of its entry or later.

    It is the next bar, from its open or from the close before it. If the coin lacks both, the
    price that is carried over the gap was before the entry: the return of the bar after the gap
    began before the event was known, so the row begins a bar later.
    """
    enters = prices.find_next_bars(entry)
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
    has = np.isfinite(take_bars(returns.carried, coin[rows], start, spans.length))
    at_entry = np.isfinite(returns.carried[coin[rows], first[rows]])
    gap = (wanted & ~has).any(axis=1)
    no_market: Any = np.zeros(len(rows), dtype=bool)
    if model == "market":
        beside = np.isfinite(returns.take_market(coin[rows], start, spans.length))
        no_market = (wanted & ~beside).any(axis=1)
    reason[rows[no_market]] = "market_missing"
    reason[rows[gap]] = "gap_in_window"
    reason[rows[~at_entry]] = "not_trading_at_entry"
    stepped = wanted & (take_bars(returns.steps, coin[rows], start, spans.length) != 0)
    # Without the steps there is no return; with them, the row is used.
    reason[rows[(stepped & ~has).any(axis=1)]] = "redenomination"
    return reason


def _with_results(
    rows: pd.DataFrame, prices: Prices, returns: Returns, windows: Windows
) -> pd.DataFrame:
    cumulated: Floats = windows.cumulated[:, -1] if len(rows) else np.zeros(0)
    live: Any = windows.live
    first = windows.zero + windows.spans.first + live.argmax(axis=1)
    start, length = windows.zero + windows.spans.first, windows.spans.length
    stepped = live & (take_bars(returns.steps, windows.coin, start, length) != 0)
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
        bhar=windows.held[:, -1] if len(rows) else np.zeros(0),
        delisted_in_window=~live[:, -1] if len(rows) else np.zeros(0, dtype=bool),
        redenomination_in_window=stepped.any(axis=1) if len(rows) else np.zeros(0, dtype=bool),
    )
