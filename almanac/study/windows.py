"""Abnormal returns: a model fitted before each event, and the bars around it.

Belongs here: the mean and the market model by least squares, abnormal returns, the variance of
their sums with the errors of the fitted parameters. Does not: tests (parametric, ranks, calendar).
Plain arrays: a row is one event and one coin, a column one bar.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from almanac.study.prices import Floats, Integers
from almanac.study.returns import Model, Returns, compounded, span_of

Booleans = np.ndarray[Any, np.dtype[np.bool_]]
CHUNK: Final = 2_048
"""Rows whose estimation windows are in memory at once."""


@dataclass(frozen=True, slots=True)
class Spans:
    """What is cumulated and what is fitted, in bars from the bar of the event (bar 0).

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
        fitted_on: returns that the model was fitted on; `parameters` of it were estimated.
        sd: the standard deviation of its residuals, with `fitted_on - parameters` degrees.
        market_squares: the sum of squares of the market's returns about their mean there.
        share_positive: the share of positive residuals.
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
    share_positive: Floats
    alpha: Floats
    beta: Floats

    @property
    def parameters(self) -> int:
        return 2 if self.model == "market" else 1

    @property
    def degrees(self) -> Floats:
        """The degrees of freedom of the residuals of each row."""
        return self.fitted_on - self.parameters

    @property
    def cumulated(self) -> Floats:
        """The cumulated abnormal return of each row up to each bar."""
        summed: Floats = np.cumsum(self.abnormal, axis=1)
        return summed

    def variance_of_sums(self) -> Floats:
        """Return the prediction-error variance of `cumulated`.

        The sum of k bars has s² (k + k²/m + (Σ(x - x̄))² / Sxx): the last two terms are the
        covariance that the bars share through the fitted parameters.
        """
        return self._variance(np.cumsum(self.live, axis=1), np.cumsum(self.market, axis=1))

    def variance_of_window(self) -> Floats:
        """Return the last column of `variance_of_sums`, without the others."""
        bars = self.live.sum(axis=1, keepdims=True)
        return self._variance(bars, self.market.sum(axis=1, keepdims=True))[:, 0]

    def variance_of_bars(self) -> Floats:
        """Return the prediction-error variance of the abnormal return of each bar."""
        return self._variance(self.live.astype(np.float64), self.market)

    def _variance(self, bars: Any, market: Floats) -> Floats:
        by_mean = bars + bars**2 / self.fitted_on[:, None]
        by_market = np.zeros_like(market)
        if self.model == "market":
            by_market = market**2 / self.market_squares[:, None]
        found: Floats = self.sd[:, None] ** 2 * (by_mean + by_market)
        return found

    def subset(self, rows: Any) -> "Windows":
        """Return some of the rows, in the same order."""
        each = ("zero", "coin", "entry", "abnormal", "live", "market", "held", "fitted_on", "sd")
        more = ("market_squares", "share_positive", "alpha", "beta")
        return replace(self, **{name: getattr(self, name)[rows] for name in (*each, *more)})


@dataclass(frozen=True, slots=True)
class Fitted:
    """Estimation windows of some rows: residuals and the market less its mean, 0 if no return."""

    rows: slice
    residuals: Floats
    market: Floats
    has: Booleans


def fit(
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
        names = [name for name in Windows.__slots__ if name not in ("model", "spans")]
        joined: dict[str, Any] = {}
        for name in names:
            joined[name] = np.concatenate([getattr(part, name) for part in parts])
        whole = replace(whole, **joined)
    usable = (whole.fitted_on >= spans.least) & (whole.sd > 0) & np.isfinite(whole.sd)
    if model == "market":
        usable &= whole.market_squares > 0
    return whole if usable.all() else whole.subset(usable), usable


def residuals_of(returns: Returns, windows: Windows) -> Iterator[Fitted]:
    """Yield the residuals of the estimation windows, some rows at a time."""
    for rows in _chunks(len(windows.zero)):
        own, market, has = _estimation(
            returns, windows.zero[rows], windows.coin[rows], windows.spans, windows.model
        )
        alpha, beta = windows.alpha[rows, None], windows.beta[rows, None]
        centred = np.where(has, market - _mean(market, has)[:, None], 0.0)
        yield Fitted(rows, np.where(has, own - alpha - beta * market, 0.0), centred, has)


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK):
        yield slice(start, min(start + CHUNK, rows))


def _estimation(
    returns: Returns, zero: Integers, coin: Integers, spans: Spans, model: Model
) -> tuple[Floats, Floats, Booleans]:
    first = zero + spans.fitted[0]
    own = span_of(returns.strict, coin, first, spans.estimation)
    has = np.isfinite(own)
    if model == "mean":
        return np.where(has, own, 0.0), np.zeros_like(own), has
    market = returns.market_of(coin, first, spans.estimation)
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
    moved = span_of(returns.carried, coin, first, spans.length)
    if returns.from_open is not None:
        is_entry = bars == entry[:, None]
        opened = span_of(returns.from_open, coin, first, spans.length)
        moved = np.where(is_entry & np.isfinite(opened), opened, moved)
    beside = np.zeros_like(moved)
    if model == "market":
        beside = returns.market_of(coin, first, spans.length)
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
        held=compounded(moved, returns.kind) - compounded(expected, returns.kind),
        fitted_on=count,
        sd=sd,
        market_squares=np.where(moves, squares, 0.0),
        share_positive=((residuals > 0) & has).sum(axis=1) / np.maximum(count, 1.0),
        alpha=alpha,
        beta=beta,
    )
