"""`Database.event_study`: its arguments, defaults and documentation.

Belongs here: what the user gives and gets. Does not: anything that imports numpy or pandas, since
`almanac.database` imports this module.
"""

from typing import TYPE_CHECKING, Any, Literal

from almanac.events import Basis, Coins, Names
from almanac.instants import Duration
from almanac.reader import Reader

if TYPE_CHECKING:
    from almanac.study.study import Study


class EventStudies:
    """The part of a database that makes event studies."""

    _reader: Reader

    def event_study(
        self,
        prices: Any,
        coins: Coins | None = None,
        categories: Names | None = None,
        min_impact: float | None = None,
        lead: Duration = "3d",
        window: tuple[int | Duration, int | Duration] = ("-3d", "3d"),
        estimation: int | Duration | None = None,
        gap: int | Duration = 10,
        model: Literal["market", "mean"] | None = None,
        market: Any = None,
        *,
        returns: Literal["log", "simple"] = "log",
        dates: Literal["exact", "instant"] = "exact",
        basis: Basis = "observed",
        events: Any = None,
        weights: Literal["rows", "events"] = "rows",
        redenominations: Literal["exclude", "keep"] = "exclude",
        bar: Duration | None = None,
        stamp: Literal["start", "end"] = "start",
        bars: Literal["grid", "frame"] = "grid",
        max_gap: int = 3,
        min_estimation: float = 0.7,
        confidence: float = 0.95,
        rounds: int = 1_999,
        seed: int = 0,
    ) -> "Study":
        """Return abnormal returns around events, each taken as it was known at entry.

        Entry is the event's date, as known at entry, less `lead`. An event enters if at that
        instant it was known, scheduled, not missing, and had that date; it enters once. What
        happened to it afterwards changes nothing: bar 0 stays the bar of that date, and an event
        that is cancelled later stays. No bar counts that starts before the entry. All rules and
        formulas: docs/study.md.

        Args:
            prices: a frame (pandas, Polars, Arrow), or a Parquet or CSV file: `ts`, `coin`,
                `close`, maybe `open`; or `ts` and one column of prices per coin; or bars (OHLCV) of
                the one coin in `coins`; or a mapping from coins to their bars. Coins are slugs,
                tickers, names or pairs such as `BTC/USDT`. A name that no coin has, or that several
                have, counts in the market alone.
            coins: the coins whose events enter. Or a mapping: names in the prices, or tickers, each
                with its coin; it selects nothing. Columns called `open`, `high`, `close` and so on
                are only read as coins if they are named here.
            categories, min_impact: filters, on the event as known at entry.
            lead: the time before the date at which it must be known.
            window: the first and last bar that are cumulated, from the bar of the event: numbers of
                bars, or times such as `-12h`.
            estimation: the bars, or the time, on which the model is fitted; None is 120 bars, or
                four windows if these are longer.
            gap: the bars, or the time, between estimation and window.
            model: `market` (least squares on the market) or `mean` (mean-adjusted); None is
                `market`, or `mean` if the prices have one coin and no market is given.
            market: a coin of the prices, or a Series, frame or file of prices; None is the
                equal-weighted mean of the other coins in the prices. A mapping has the market of
                each coin; coins that are not in it have that mean.
            returns: `log` or `simple`.
            dates: `exact` are days and instants, `instant` leaves out dates that are days.
            basis: as in `events`.
            events: a frame or file of your own instead of the warehouse's events: `event_id`,
                `coin` (as in the prices, or another name of the same coin), `date`, and maybe
                `known_from`, `categories`, `impact`.
            weights: `rows` weighs each event and coin the same; `events` each event, whose coins
                share its weight.
            redenominations: a step of a price by a power of ten, such as 1:1000, is no return
                (`exclude`: rows with a step in the window are left out), or one (`keep`).
            bar: the length of a bar; None is the most frequent distance in the prices.
            stamp: whether `ts` is the start of a bar, as exchanges give it, or its end.
            bars: `grid` has every bar between the first and the last; `frame` those that the prices
                have, for a market that closes.
            max_gap: the most missing prices in a row over which a price is carried in a window.
            min_estimation: the least share of the estimation window that has returns.
            confidence: of the band.
            rounds, seed: draws of the bootstraps; the same seed gives the same result.

        Returns:
            A `Study`: `table`, `tests`, `headline`, `events`, `excluded`, `counts`, `naive`,
            `redenominations`, `by(…)`, `compare(…)`, `plot()`, `to_html()`.

        Raises:
            InvalidArgument: an argument or the prices can't be used, no event can, or scipy is not
                installed (`crypto-almanac[study]`).
            UnknownName, AmbiguousCoin: a coin of an argument does not exist, or is not unique; or
                each name in the prices is ambiguous.
        """
        from almanac.study.study import StudyRequest, event_study

        request = StudyRequest(
            coins=coins,
            categories=categories,
            min_impact=min_impact,
            lead=lead,
            window=window,
            estimation=estimation,
            gap=gap,
            least=min_estimation,
            model=model,
            market=market,
            returns=returns,
            bar=bar,
            stamp=stamp,
            bars=bars,
            max_gap=max_gap,
            dates=dates,
            basis=basis,
            events=events,
            weights=weights,
            redenominations=redenominations,
            confidence=confidence,
            rounds=rounds,
            seed=seed,
        )
        return event_study(self._reader, prices, request)
