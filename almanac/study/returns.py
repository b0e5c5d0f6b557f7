"""Returns of prices, and price steps that a redenomination makes.

A coin that exchanges 1,000 old units for a new one, or data that change their unit, move a price by
1:1000 in a bar in which nothing happened.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from almanac.study.options import Kind, Steps
from almanac.study.prices import Floats, Integers, Prices

_NEAR: Final = 0.25
"""How far, in logarithms, a step may be from its power of ten, for each power: the market moves in
this bar, too. A step of 1:10 has 0.78 to 1.28 of it, one of 1:1000 half to twice."""
_NEAR_MAX: Final = 1.15
_CALM: Final = 0.25
"""The largest move of a neighbouring bar, as a share of the step; a crash continues or rebounds."""
_BESIDE: Final = 3


def find_power_steps(moves: Floats) -> Floats:
    """Return the power of ten of each move of a price that is a step, else 0.

    `moves` are logarithms `[coin, bar]`, NaN where there is none. A step is near a power of ten,
    and the bars beside it move little, or take the step back, as a single wrong price does.
    """
    power = np.zeros_like(moves)
    large = np.nonzero(np.abs(moves) > np.log(10.0) - _NEAR)  # Never where it is NaN.
    nearest = np.round(moves[large] / np.log(10.0))
    off = np.abs(moves[large] - nearest * np.log(10.0))
    power[large] = np.where(off <= np.minimum(_NEAR * np.abs(nearest), _NEAR_MAX), nearest, 0.0)
    found = np.zeros_like(power)
    for coin, bar in zip(*np.nonzero(power), strict=True):
        near = np.r_[max(bar - _BESIDE, 0) : bar, bar + 1 : bar + 1 + _BESIDE]
        near = near[near < moves.shape[1]]
        beside = np.nan_to_num(moves[coin, near])
        beside = np.where(power[coin, near] == -power[coin, bar], 0.0, beside)
        if (np.abs(beside) <= _CALM * np.abs(moves[coin, bar])).all():
            found[coin, bar] = power[coin, bar]
    return found


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of each coin on each bar, NaN where there is none.

    Attributes:
        strict: returns between two bars that both have a price; models are fitted on these.
        carried: returns after a price was carried over a gap of at most `max_gap` bars: 0 in the
            gap, and the whole move on the bar after it; windows are cumulated on these.
        from_open: the return from the open to the close of a bar; None without opens.
        markets: the returns of the markets that were given, `[market, bar]`.
        market: the place of the market of each coin in them; -1 is the mean of the other coins.
        last: the last bar with a price, of each coin; -1 if it has none.
        day: the number of the calendar day (UTC) of each bar's middle, from 0 on, without holes.
        kind: whether returns are logarithms or simple.
        moves: the logarithms of `carried`, with the steps.
        steps: the powers of ten by which prices step, 0 where they do not; `carried` and `strict`
            have no return there if steps are excluded.
        market_moves, market_steps: the same of the markets.
    """

    strict: Floats
    carried: Floats
    from_open: Floats | None
    markets: Floats
    market: Integers
    last: Integers
    day: Integers
    kind: Kind
    moves: Floats
    steps: Floats
    market_moves: Floats
    market_steps: Floats
    _sum: Floats
    _count: Floats

    @property
    def bars(self) -> int:
        return int(self.strict.shape[1])

    def take_market(self, coin: Integers, first: Integers, length: int) -> Floats:
        """Return the market's returns on `length` bars from the first of each row.

        Without a given market it is the equal-weighted mean of the other coins that have a return.
        """
        place = self.market[coin]
        if len(first) == 0 or (place >= 0).all():
            return take_bars(self.markets, place, first, length)
        found = self._others(coin, first, length)
        given = place >= 0
        found[given] = take_bars(self.markets, place[given], first[given], length)
        return found

    def _others(self, coin: Integers, first: Integers, length: int) -> Floats:
        own = take_bars(self.strict, coin, first, length)
        is_own = np.isfinite(own)
        count = sliding_window_view(self._count, length)[first] - is_own
        total = sliding_window_view(self._sum, length)[first] - np.where(is_own, own, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, total / count, np.nan)


def compute_returns(
    prices: Prices,
    *,
    kind: Kind = "log",
    market: Floats | None = None,
    market_of_coin: Integers | None = None,
    max_gap: int = 3,
    steps: Steps = "exclude",
) -> Returns:
    """Return the returns of prices.

    `market` are the closes of a market on the same bars, or of several, `[market, bar]`; then
    `market_of_coin` is the place of the market of each coin, -1 for the mean of the others.
    """
    closes = np.ascontiguousarray(prices.close.T)
    strict, from_open = _moves(closes, kind), None
    if prices.open is not None:
        from_open = _ratio(closes, np.ascontiguousarray(prices.open.T), kind)
    has = np.isfinite(closes)
    last: Any = np.where(has.any(axis=1), closes.shape[1] - 1 - has[:, ::-1].argmax(axis=1), -1)
    carried = _carried_moves(closes, strict, has, last, max_gap, kind)
    beside = np.zeros((0, len(prices.starts))) if market is None else np.atleast_2d(market)
    markets = _moves(beside, kind)
    of_coin = np.full(len(closes), -1 if market is None else 0, np.int64)
    moves, stepped, strict, carried = _without_steps(strict, carried, kind, steps)
    market_moves, market_stepped, markets, _ = _without_steps(markets, markets, kind, steps)
    is_counted = np.isfinite(strict)
    middle = prices.starts + prices.bar_us // 2  # Two local days may begin on one day of UTC.
    return Returns(
        strict=strict,
        carried=carried,
        from_open=from_open,
        markets=markets,
        market=of_coin if market_of_coin is None else market_of_coin,
        last=last.astype(np.int64),
        day=np.unique(middle // 86_400_000_000, return_inverse=True)[1].astype(np.int64),
        kind=kind,
        moves=moves,
        steps=stepped,
        market_moves=market_moves,
        market_steps=market_stepped,
        _sum=np.where(is_counted, strict, 0.0).sum(axis=0),
        _count=is_counted.sum(axis=0).astype(np.float64),
    )


def _without_steps(
    strict: Floats, carried: Floats, kind: Kind, steps: Steps
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the logarithms of the moves, their steps, and the returns without the steps."""
    moves = carried if kind == "log" else np.log1p(carried)
    power = find_power_steps(moves)
    if steps == "keep" or not power.any():
        return moves, power, strict, carried
    stepped = power != 0
    strict, carried = (np.where(stepped, np.nan, part) for part in (strict, carried))
    return moves, power, strict, carried


def take_bars(values: Floats, coin: Integers, first: Integers, length: int) -> Floats:
    if len(first) == 0:
        return np.zeros((0, length))
    found: Floats = sliding_window_view(values, length, axis=1)[coin, first]
    return found


def compound(returns: Floats, kind: Kind) -> Floats:
    """Return the value of 1 held through returns, along the last axis."""
    logs = returns if kind == "log" else np.log1p(returns)
    grown: Floats = np.exp(np.cumsum(logs, axis=-1))
    return grown


def _moves(closes: Floats, kind: Kind) -> Floats:
    found = np.full(closes.shape, np.nan)
    found[:, 1:] = _ratio(closes[:, 1:], closes[:, :-1], kind)
    return found


def _ratio(after: Floats, before: Floats, kind: Kind) -> Floats:
    found: Floats = np.log(after / before) if kind == "log" else after / before - 1.0
    return found


def _carried_moves(
    closes: Floats, strict: Floats, has: Any, last: Integers, max_gap: int, kind: Kind
) -> Floats:
    has_gaps = ~has.all(axis=1)
    if not has_gaps.any():
        return strict
    found = strict.copy()
    some = _carried(closes[has_gaps], has[has_gaps], last[has_gaps], max_gap)
    found[has_gaps] = _moves(some, kind)
    return found


def _carried(closes: Floats, has: Any, last: Integers, max_gap: int) -> Floats:
    """Carry prices over gaps between two prices; never past the last price of a coin."""
    bars = np.arange(closes.shape[1])
    before = np.maximum.accumulate(np.where(has, bars, -1), axis=1)
    after = np.minimum.accumulate(np.where(has, bars, len(bars))[:, ::-1], axis=1)[:, ::-1]
    is_short = (before >= 0) & (after <= last[:, None]) & (after - before - 1 <= max_gap)
    values = np.take_along_axis(closes, np.maximum(before, 0), axis=1)
    return np.where(is_short, values, np.nan)
