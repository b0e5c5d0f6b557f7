"""The result of an event study: tables, tests, groups, and how it was made.

Belongs here: `Study` and the function that makes it from prices and events. Does not: what the
parts compute (prices, selection, placing, results), figures for people (report).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from almanac.coins import Coin
from almanac.errors import InvalidArgument
from almanac.events import Basis, Coins, Names, one_of
from almanac.instants import Duration, duration
from almanac.reader import Reader
from almanac.study import report
from almanac.study.prices import MICROSECOND, Bars, Prices, Stamp, read_prices
from almanac.study.results import (
    Comparison,
    Control,
    Draws,
    Figures,
    Group,
    Weighting,
    Weights,
    adjusted,
    compared,
    figures_of,
    headline_of,
    naive_table,
    weigh,
)
from almanac.study.returns import Kind, Model, Returns, Steps, returns_of
from almanac.study.selection import (
    EventFilters,
    Markets,
    SelectedEvents,
    read_markets,
    refuse_same_coin,
    said_coins,
    select,
    select_given,
)
from almanac.study.significance import Verdict, cross_sectional
from almanac.study.windows import REASONS, Placed, Spans, place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Groups = Literal["category", "band", "coin"]
Bound = int | Duration
_LISTED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """The arguments of `Database.event_study`; documented there."""

    coins: Coins | None
    categories: Names | None
    min_impact: float | None
    lead: Duration
    window: tuple[Bound, Bound]
    estimation: Bound | None
    gap: Bound
    least: float
    model: Model | None
    market: Any
    returns: Kind
    bar: Duration | None
    stamp: Stamp
    bars: Bars
    max_gap: int
    dates: str
    basis: Basis
    events: Any
    weights: Weighting
    redenominations: Steps
    confidence: float
    rounds: int
    seed: int


class Study:
    """An event study over events as they were known at entry; made by `Database.event_study`.

    Attributes:
        table: one row per bar: `bar` (0 is that of the event), `offset`, `n`, `aar`, its plain t,
            Patell and BMP statistics and `aar_p`; `caar` with `caar_low`, `caar_high` and `caar_p`;
            `bhar`. Returns are fractions; both p are of the headline's kind.
        tests: one row per test of the whole window: `test`, `statistic`, `degrees`, `p`,
            `is_headline`. The last is the plain t of the naive study.
        headline: the test to rely on, a `Verdict` with `test`, `statistic`, `degrees` and `p`.
        events: one row per event and coin used, with what was known at entry, the fit, `car`,
            `scar`, `bhar`, and what became of the event (`moved_after_entry`, …).
        excluded: one row per event, or event and coin, that is not used, with its `reason`.
        counts: the numbers of rows used and excluded, by reason; `days` are those with an event,
            `redenominations` the steps in the prices.
        redenominations: one row per step of a price by a power of ten: `coin` (a name in the
            prices, or `market`), `ts` (start of the bar), `ratio` of the prices, `factor`.
        naive: by bar, the study of today's table: events that are scheduled today, at the dates
            they have today, exact or not, known or not, with the plain t.
        weights: `rows` or `events`.
        ambiguous: names in the prices that several coins have.
        settings: what was chosen, in words.
    """

    def __init__(
        self,
        *,
        prices: Prices,
        returns: Returns,
        placed: Placed,
        figures: Figures,
        naive: pd.DataFrame,
        naive_t: Verdict,
        excluded: pd.DataFrame,
        redenominations: pd.DataFrame,
        options: Draws,
        weighting: Weighting,
        ambiguous: tuple[str, ...],
        settings: Mapping[str, str],
    ) -> None:
        self._returns, self._placed, self._options = returns, placed, options
        self.weights: Weighting = weighting
        self.ambiguous: tuple[str, ...] = ambiguous
        self.table: pd.DataFrame = figures.table
        self.headline: Verdict = figures.headline
        self.events: pd.DataFrame = placed.rows
        self.excluded = excluded
        self.redenominations = redenominations
        self.naive = naive
        self.settings = dict(settings)
        self.tests: pd.DataFrame = _tests(figures, naive_t)
        self.counts: dict[str, int] = {
            "used": len(placed.rows),
            "events": int(placed.rows["event_id"].nunique()),
            "coins": int(placed.rows["coin"].nunique()),
            "days": figures.days,
            "moved_after_entry": int(placed.rows["moved_after_entry"].sum()),
            "cancelled_after_entry": int(placed.rows["cancelled_after_entry"].sum()),
            "delisted_in_window": int(placed.rows["delisted_in_window"].sum()),
            "redenomination_in_window": int(placed.rows["redenomination_in_window"].sum()),
            "redenominations": len(redenominations),
            **{name: int(n) for name, n in excluded["reason"].value_counts().items()},
        }

    @property
    def caar(self) -> float:
        """The mean cumulated abnormal return of the whole window, a fraction."""
        return float(self.table["caar"].iloc[-1])

    def by(self, group: Groups, *, control: Control = "bh", level: float = 0.05) -> pd.DataFrame:
        """Return the headline of each group, with false discoveries controlled.

        Groups are as known at entry; an event with several categories is in each of them. Columns:
        the group, `n`, `events`, `caar`, `bhar`, `test`, `statistic`, `p`, `p_adjusted` (`bh`:
        Benjamini and Hochberg; `by`: Benjamini and Yekutieli, for any dependence) and
        `significant`: whether `p_adjusted` is at most `level`. A group whose p can't
        be computed has NaN.

        Raises:
            InvalidArgument: there is no such group or control.
        """
        one_of(group, "group", ("category", "band", "coin"))
        one_of(control, "control", ("bh", "by"))
        keys = self._keys(group)
        found = []
        for name in sorted(keys.unique()):
            rows = np.unique(keys.index[keys == name].to_numpy())
            mine = self.events.loc[rows]
            weights = weigh(mine, self.weights)
            part = self._placed.windows.subset(rows)
            verdict = headline_of(self._returns, part, self._options, weights)
            found.append(
                {
                    group: name,
                    "n": len(rows),
                    "events": mine["event_id"].nunique(),
                    "caar": float(weights.mean(mine["car"].to_numpy())),
                    "bhar": float(weights.mean(mine["bhar"].to_numpy())),
                    "test": verdict.test,
                    "statistic": verdict.statistic,
                    "p": verdict.p,
                }
            )
        names = [group, "n", "events", "caar", "bhar", "test", "statistic", "p"]
        table = pd.DataFrame(found, columns=names)
        table["p_adjusted"] = adjusted(table["p"].to_numpy(np.float64), control)
        table["significant"] = table["p_adjusted"] <= level
        return table.sort_values("p", kind="stable", ignore_index=True)

    def compare(self, group: Groups, first: Names, second: Names | None = None) -> Comparison:
        """Return the difference between the CAAR of two groups, with tests.

        Args:
            group: what the names are: `category`, `band` or `coin`, as known at entry.
            first, second: names, one or several; None is every row that is not in `first`. A row in
                both groups counts in both.

        Returns:
            A `Comparison`: `difference` (first less second), its band `low` and `high`, `headline`,
            `tests`, `groups`. The headline is the `calendar` test of the difference; with fewer
            than eight days in the windows of a group there is none.

        Raises:
            InvalidArgument: there is no such group or name, or a group has no rows.
        """
        one_of(group, "group", ("category", "band", "coin"))
        keys = self._keys(group)
        rows = self._rows_of(keys, group, first)
        if second is None:
            others, label = np.setdiff1d(np.arange(len(self.events)), rows), "all others"
        else:
            others, label = self._rows_of(keys, group, second), _name(second)
        if not len(others):
            raise InvalidArgument(f"second={second!r}: no row of the study is outside of {first!r}")
        parts = [self._group(name, r) for name, r in ((_name(first), rows), (label, others))]
        return compared(self._returns, self._placed.windows, parts[0], parts[1], self._options)

    def _keys(self, group: Groups) -> "pd.Series[Any]":
        """Return the group of each row, under its place; one with several categories repeats."""
        column = {"category": "categories"}.get(group, group)
        keys = self.events[column].explode() if group == "category" else self.events[column]
        return keys.dropna()

    def _rows_of(self, keys: "pd.Series[Any]", group: str, names: Names) -> Any:
        wanted = [names] if isinstance(names, str) else list(names)
        texts = keys.astype(str).str.lower()
        for name in wanted:
            if not (texts == str(name).lower()).any():
                raise InvalidArgument(
                    f"no row has the {group} {name!r}; expected one or more of: "
                    f"{_some(sorted(map(str, keys.unique())))}"
                )
        is_mine = texts.isin([str(name).lower() for name in wanted])
        return np.unique(keys.index[is_mine].to_numpy())

    def _group(self, name: str, rows: Any) -> Group:
        mine = self.events.loc[rows]
        return Group(name, rows, weigh(mine, self.weights), mine["event_id"].nunique())

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return a matplotlib figure of the CAAR with its band, and write it to `path` if given.

        Raises:
            InvalidArgument: matplotlib is not installed.
        """
        return report.plot(self, path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the study as one HTML page with its figure, and write it to `path` if given.

        Raises:
            InvalidArgument: matplotlib is not installed.
        """
        return report.page(self, path)

    def __repr__(self) -> str:
        return report.text(self)

    def _repr_html_(self) -> str:
        return report.fragment(self)


def event_study(reader: Reader, given: Any, request: StudyRequest) -> Study:
    """Return the study; see `Database.event_study`."""
    report.require("scipy")
    if request.coins is not None and not isinstance(request.coins, str | Coin | Mapping):
        request = replace(request, coins=list(request.coins))  # It may be a generator.
    lead = duration(request.lead, "lead")
    options = Draws(request.rounds, request.seed, request.confidence)
    _check(request)
    prices = read_prices(
        given,
        coins=request.coins,
        bar=request.bar,
        stamp=request.stamp,
        bars=request.bars,
        tz=reader.tz,
    )
    said = said_coins(request.coins)
    if prices.beside:
        refuse_same_coin(reader, prices.coins[0], prices.beside, said)
    spans = _spans(request, prices.bar_us)
    has_market = request.market is not None or len(prices.coins) > 1
    model = request.model or ("market" if has_market else "mean")
    markets = Markets()
    if model == "market":
        markets = read_markets(reader, request.market, prices, said, request.stamp)
    returns = returns_of(
        prices,
        kind=request.returns,
        market=markets.closes,
        market_of_coin=markets.of_coin,
        max_gap=request.max_gap,
        steps=request.redenominations,
    )
    known, today = _selected(reader, prices, request, lead)
    placed = place(prices, returns, known.rows, spans, model, from_entry=True)
    naive = place(prices, returns, today.rows, spans, model, from_entry=False)
    weights, naive_weights = (_weights(part, request.weights) for part in (placed, naive))
    excluded = pd.concat(
        [part for part in (known.excluded, placed.excluded) if len(part)] or [known.excluded],
        ignore_index=True,
    )
    if placed.rows.empty:
        counted = excluded["reason"].value_counts()
        why = "; ".join(f"{n:,} {REASONS[str(reason)]}" for reason, n in counted.items())
        raise InvalidArgument(
            "no event can be used; expected at least one, and more for most tests. Not used: "
            f"{why or 'none: no event passes the filters in the span of the prices'}. "
            f"Names in the prices that no coin has: {_some(known.names.unknown)}; that several "
            f"have: {_some(tuple(known.names.ambiguous))}."
        )
    return Study(
        prices=prices,
        returns=returns,
        placed=placed,
        figures=figures_of(returns, placed.windows, options, prices.bar_us, weights),
        naive=naive_table(naive.windows, prices.bar_us, naive_weights),
        naive_t=replace(
            cross_sectional(naive_weights.of_units(naive.windows.cumulated[:, -1])), test="naive_t"
        ),
        excluded=excluded,
        redenominations=_redenominations(prices, returns, markets),
        options=options,
        weighting=request.weights,
        ambiguous=tuple(known.names.ambiguous),
        settings=_settings(request, prices, spans, known, markets, placed.windows.model),
    )


def _weights(placed: Placed, weighting: Weighting) -> Weights:
    rows = placed.rows
    if weighting == "rows":
        return weigh(rows, weighting)
    several = rows.groupby("event_id")["bar_zero"].nunique() > 1
    if several.any():
        raise InvalidArgument(
            f"events: {several.index[several][0]!r} has several dates; expected one date an event "
            "with weights='events'"
        )
    return weigh(rows, weighting)


def _redenominations(prices: Prices, returns: Returns, markets: Markets) -> pd.DataFrame:
    """Return one row per step of a price, or of a market, by a power of ten."""
    starts = pd.to_datetime(prices.starts, unit="us", utc=True)
    found = []
    for names, moves, steps in (
        (prices.coins, returns.moves, returns.steps),
        (markets.names, returns.market_moves, returns.market_steps),
    ):
        place, bar = np.nonzero(steps)
        found.append(
            pd.DataFrame(
                {
                    "coin": np.array(names, dtype=object)[place],
                    "ts": starts[bar],
                    "ratio": np.exp(moves[place, bar]),
                    "factor": 10.0 ** steps[place, bar],
                }
            )
        )
    return pd.concat(found, ignore_index=True)


def _selected(
    reader: Reader, prices: Prices, request: StudyRequest, lead: timedelta
) -> tuple[SelectedEvents, SelectedEvents]:
    if request.events is not None:
        if request.categories is not None or request.min_impact is not None:
            raise InvalidArgument(
                "categories and min_impact select events of the warehouse; leave them out, and "
                "filter the frame of events= itself"
            )
        return select_given(reader, request.events, prices.coins, request.coins, lead)
    filters = EventFilters(
        coins=request.coins,
        categories=request.categories,
        min_impact=request.min_impact,
        lead=lead,
        basis=request.basis,
        dates=request.dates,
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    span = (
        epoch + int(prices.starts[0]) * MICROSECOND,
        epoch + int(prices.starts[-1] + prices.bar_us - 1) * MICROSECOND,
    )
    return select(reader, prices.coins, filters, span)


def _check(request: StudyRequest) -> None:
    if request.model is not None:
        one_of(request.model, "model", ("market", "mean"))
    one_of(request.returns, "returns", ("log", "simple"))
    one_of(request.stamp, "stamp", ("start", "end"))
    one_of(request.bars, "bars", ("grid", "frame"))
    one_of(request.weights, "weights", ("rows", "events"))
    one_of(request.redenominations, "redenominations", ("exclude", "keep"))
    if not 0 < request.confidence < 1:
        raise InvalidArgument(f"confidence={request.confidence!r}; expected a number in 0 to 1")
    if request.rounds < 99:
        raise InvalidArgument(f"rounds={request.rounds!r}; expected 99 or more")
    if request.seed < 0:
        raise InvalidArgument(f"seed={request.seed!r}; expected a whole number, 0 or more")
    if not 0 < request.least <= 1:
        raise InvalidArgument(f"min_estimation={request.least!r}; expected a share, 0 to 1")
    if request.max_gap < 0:
        raise InvalidArgument(f"max_gap={request.max_gap!r}; expected bars, 0 or more")
    if request.model == "mean" and request.market is not None:
        raise InvalidArgument("the mean model has no market; leave market out, or model='market'")


def _spans(request: StudyRequest, bar_us: int) -> Spans:
    if not isinstance(request.window, tuple) or len(request.window) != 2:
        raise InvalidArgument(f"window={request.window!r}; expected two bounds, such as (-3, 3)")
    first, last = (_bars(bound, "window", bar_us) for bound in request.window)
    if last < first:
        raise InvalidArgument(f"window={request.window!r} ends before it begins")
    length = last - first + 1
    if request.estimation is None:
        estimation = max(120, 4 * length)
    else:
        estimation = _bars(request.estimation, "estimation", bar_us)
    gap = _bars(request.gap, "gap", bar_us)
    if estimation < 10 or gap < 0:
        raise InvalidArgument(
            f"estimation={request.estimation!r}, gap={request.gap!r}: expected 10 bars or more to "
            "fit a model on, and a gap that is not negative"
        )
    return Spans(first, last, estimation, gap, max(10, int(np.ceil(request.least * estimation))))


def _bars(bound: Bound, name: str, bar_us: int) -> int:
    """Return a bound in bars: a number of bars, or a time, whose bars are counted whole."""
    if isinstance(bound, int | np.integer):
        return int(bound)
    if isinstance(bound, timedelta) and bound < timedelta(0):
        return -_bars(-bound, name, bar_us)
    if isinstance(bound, str) and bound.strip().startswith("-"):
        return -_bars(bound.strip()[1:], name, bar_us)
    length = duration(bound.removeprefix("+") if isinstance(bound, str) else bound, name)
    return int(length // MICROSECOND // bar_us)


def _tests(figures: Figures, plain: Verdict) -> pd.DataFrame:
    found = [*figures.verdicts, plain]
    return pd.DataFrame(
        {
            "test": [verdict.test for verdict in found],
            "statistic": [verdict.statistic for verdict in found],
            "degrees": [verdict.degrees for verdict in found],
            "p": [verdict.p for verdict in found],
            "is_headline": [verdict.test == figures.headline.test for verdict in found],
        }
    )


def _name(names: Names) -> str:
    return names if isinstance(names, str) else ", ".join(names)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return ", ".join(names[:_LISTED_MAX]) + more or "none"


def in_words(length: timedelta) -> str:
    """Return a duration in the form of the arguments, such as `3d` or `1h 30m`."""
    hours, seconds = divmod(length.seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    parts = zip((length.days, hours, minutes, seconds), "dhms", strict=True)
    return " ".join(f"{number}{unit}" for number, unit in parts if number) or "0d"


def _settings(
    request: StudyRequest,
    prices: Prices,
    spans: Spans,
    known: SelectedEvents,
    markets: Markets,
    model: Model,
) -> dict[str, str]:
    market = markets.text if model == "market" else "none"
    is_kept = request.redenominations == "keep"
    counts = prices.counts
    return {
        "model": model,
        "market": market,
        "returns": request.returns,
        "lead": in_words(duration(request.lead, "lead")),
        "basis": "given" if request.events is not None else request.basis,
        "bar": in_words(prices.bar_us * MICROSECOND),
        "window": f"bars {spans.first:+d} to {spans.last:+d} from that of the event",
        "estimation": f"{spans.estimation} bars, at least {spans.least} with a return",
        "gap": f"{spans.gap} bars",
        "prices": (
            f"{counts['rows']:,} prices of {counts['coins']:,} coins on {counts['bars']:,} bars; "
            f"{counts['missing_prices']:,} missing, {counts['bad_prices']:,} not positive"
        ),
        "weights": {"rows": "each row the same", "events": "each event the same"}[request.weights],
        "redenominations": "kept as returns" if is_kept else "no return across a step",
        "names without a coin": _some(known.names.unknown),
        "names of several coins": _some(tuple(known.names.ambiguous)),
        "draws": f"{request.rounds:,}, seed {request.seed}",
        "confidence": f"{request.confidence:.0%}",
    }
