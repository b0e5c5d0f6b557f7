"""Makes an event study from prices and events: checks the arguments and runs the steps."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pandas as pd

from almanac.coins import Coin
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import US, Duration, TimeUnit, read_duration
from almanac.events import Basis, Coins, MinImpact, Names
from almanac.reader import Reader
from almanac.study.estimates import Draws, compute_figures, cross_sectional, make_naive_table
from almanac.study.options import Bound, StudyOptions
from almanac.study.prices import Prices, read_frame, read_prices, shorten_names
from almanac.study.report import Study, require_package
from almanac.study.returns import Returns, compute_returns
from almanac.study.selection import (
    CoinNames,
    Markets,
    read_given_events,
    read_markets,
    read_named_coins,
    select_events,
)
from almanac.study.windows import REASONS, Spans, make_study_rows
from almanac.user_files import explain_errors


def event_study(
    reader: Reader,
    given: Any,
    options: StudyOptions,
    *,
    coins: Coins | None,
    categories: Names | None,
    min_impact: MinImpact | None,
    lead: Duration | None,
    window: tuple[Bound, Bound],
    market: Any,
    events: Any,
    basis: Basis,
    confidence: float,
    unit: TimeUnit | None,
) -> Study:
    """Return the study; see `Database.event_study`."""
    require_package("scipy")
    if coins is not None and not isinstance(coins, str | Coin | Mapping):
        with explain_errors("coins"):
            coins = list(coins)  # It may be a generator.
    if events is not None:
        events = read_frame(events, "events", ("date", "known_from"))
    usual = "0d" if _are_news(events) else "3d"
    before = read_duration(usual if lead is None else lead, "lead")
    if not 0 < confidence < 1:
        raise InvalidArgument(f"confidence={confidence!r}; expected a number in 0 to 1")
    if options.model == "mean" and market is not None:
        raise InvalidArgument("the mean model has no market; leave market out, or model='market'")
    prices = read_prices(
        given,
        coins=coins,
        bar=options.bar,
        stamp=options.stamp,
        bars=options.bars,
        tz=reader.tz,
        unit=unit,
        now=reader.now(),
    )
    spans = _spans(window, options, prices.bar_us)
    has_market = market is not None or len(prices.coins) > 1
    model = options.model or ("market" if has_market else "mean")
    markets = Markets()
    if model == "market":
        said = read_named_coins(coins)
        markets = read_markets(reader, market, prices, said, options.stamp, unit)
    returns = compute_returns(
        prices,
        kind=options.returns,
        market=markets.closes,
        market_of_coin=markets.of_coin,
        max_gap=options.max_gap,
        steps=options.redenominations,
    )
    if events is None:
        known, today = select_events(
            reader,
            prices,
            coins=coins,
            categories=categories,
            min_impact=min_impact,
            lead=before,
            basis=basis,
            dates=options.dates,
        )
    elif categories is not None or min_impact is not None:
        raise InvalidArgument(
            "categories and min_impact select events of the warehouse; leave them out, and "
            "filter the frame of events= itself"
        )
    else:
        known, today = read_given_events(reader, events, prices.coins, coins, before, unit)
    placed = make_study_rows(prices, returns, known.rows, spans, model, from_entry=True)
    naive = make_study_rows(prices, returns, today.rows, spans, model, from_entry=False)
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
            f"Names in the prices without a coin: {shorten_names(known.names.unknown)}; with "
            f"several coins: {shorten_names(tuple(known.names.ambiguous))}. Prices that are not "
            f"above 0, and do not count: {prices.counts['bad_prices']:,}."
            f"{_ADVICE if events is not None and 'known_too_late' in counted else ''}"
        )
    draws = Draws(options.rounds, options.seed, confidence)
    naive_cars = naive.windows.cumulated[:, -1]
    return Study(
        returns=returns,
        placed=placed,
        figures=compute_figures(returns, placed.windows, draws, prices.bar_us),
        naive=make_naive_table(naive.windows, prices.bar_us),
        naive_t=replace(cross_sectional(naive_cars), test="naive_t"),
        excluded=excluded,
        redenominations=_redenominations(prices, returns, markets),
        options=draws,
        ambiguous=tuple(known.names.ambiguous),
        settings={
            "model": model,
            "market": markets.text if model == "market" else "none",
            "returns": options.returns,
            "lead": format_duration(before),
            "basis": basis if events is None else "given",
            **_settings(options, prices, spans, known.names),
            "draws": f"{options.rounds:,}, seed {options.seed}",
            "confidence": f"{confidence:.0%}",
        },
    )


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


def _are_news(events: pd.DataFrame | None) -> bool:
    """Whether each row's date is the time at which it became known."""
    if events is None or not len(events) or "known_from" not in events.columns:
        return False
    return bool((events["known_from"] == events["date"]).all())


_ADVICE: Final = (
    ' For a study of announcements, use events=db.announcements() and leave out lead, or "0d".'
)


def _spans(window: tuple[Bound, Bound], options: StudyOptions, bar_us: int) -> Spans:
    if not isinstance(window, tuple) or len(window) != 2:
        raise InvalidArgument(f"window={window!r}; expected two bounds, such as (-3, 3)")
    first, last = (_bars(bound, "window", bar_us) for bound in window)
    if last < first:
        raise InvalidArgument(f"window={window!r} ends before it begins")
    length = last - first + 1
    if options.estimation is None:
        estimation = max(120, 4 * length)
    else:
        estimation = _bars(options.estimation, "estimation", bar_us)
    gap = _bars(options.gap, "gap", bar_us)
    if estimation < 10 or gap < 0:
        raise InvalidArgument(
            f"estimation={options.estimation!r}, gap={options.gap!r}: expected 10 bars or more to "
            "fit a model on, and a gap that is not negative"
        )
    return Spans(
        first, last, estimation, gap, max(10, int(np.ceil(options.min_estimation * estimation)))
    )


def _bars(bound: Bound, name: str, bar_us: int) -> int:
    """Return a bound in bars: a number of bars, or a time, whose bars are counted whole."""
    if isinstance(bound, int | np.integer):
        return int(bound)
    if isinstance(bound, timedelta) and bound < timedelta(0):
        return -_bars(-bound, name, bar_us)
    if isinstance(bound, str) and bound.strip().startswith("-"):
        return -_bars(bound.strip()[1:], name, bar_us)
    length = read_duration(bound.removeprefix("+") if isinstance(bound, str) else bound, name)
    return int(length // US // bar_us)


def format_duration(length: timedelta) -> str:
    """Return a duration in the form of the arguments, such as `3d` or `1h 30m`."""
    hours, seconds = divmod(length.seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    parts = zip((length.days, hours, minutes, seconds), "dhms", strict=True)
    return " ".join(f"{number}{unit}" for number, unit in parts if number) or "0d"


def _settings(
    options: StudyOptions, prices: Prices, spans: Spans, names: CoinNames
) -> dict[str, str]:
    is_kept = options.redenominations == "keep"
    counts = prices.counts
    last = {"last prices": f"{counts['partial_bars']:,} left out, since they are not whole bars"}
    return {
        "bar": format_duration(prices.bar_us * US),
        "window": f"bars {spans.first:+d} to {spans.last:+d} from the event's bar",
        "estimation": f"{spans.estimation} bars, at least {spans.least} with a return",
        "gap": f"{spans.gap} bars",
        "prices": (
            f"{counts['rows']:,} prices of {counts['coins']:,} coins on {counts['bars']:,} bars; "
            f"{counts['missing_prices']:,} missing, {counts['bad_prices']:,} not positive"
        ),
        **(last if counts["partial_bars"] else {}),
        "redenominations": "kept as returns" if is_kept else "no return across a step",
        "names without a coin": shorten_names(names.unknown),
        "names of several coins": shorten_names(tuple(names.ambiguous)),
    }
