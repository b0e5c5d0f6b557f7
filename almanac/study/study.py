"""Makes an event study from prices and events: checks the arguments and runs the steps."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

from almanac.coins import Coin
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import ORIGIN, US, read_duration
from almanac.events import check_choice
from almanac.reader import Reader
from almanac.study.estimates import Draws, compute_figures, make_naive_table
from almanac.study.prices import Prices, read_frame, read_prices, shorten_names
from almanac.study.report import Study, require_package
from almanac.study.returns import Model, Returns, compute_returns
from almanac.study.selection import (
    Bound,
    Markets,
    SelectedEvents,
    StudyRequest,
    read_given_events,
    read_markets,
    read_named_coins,
    select_events,
)
from almanac.study.significance import cross_sectional
from almanac.study.windows import REASONS, Spans, make_study_rows
from almanac.user_files import explain_errors


def event_study(reader: Reader, given: Any, request: StudyRequest) -> Study:
    """Return the study; see `Database.event_study`."""
    require_package("scipy")
    if request.coins is not None and not isinstance(request.coins, str | Coin | Mapping):
        with explain_errors("coins"):
            request = replace(request, coins=list(request.coins))  # It may be a generator.
    if request.events is not None:
        frame = read_frame(request.events, "events", ("date", "known_from"))
        request = replace(request, events=frame)
    usual = "0d" if _are_news(request.events) else "3d"
    lead = read_duration(usual if request.lead is None else request.lead, "lead")
    options = Draws(request.rounds, request.seed, request.confidence)
    _check(request)
    prices = read_prices(
        given,
        coins=request.coins,
        bar=request.bar,
        stamp=request.stamp,
        bars=request.bars,
        tz=reader.tz,
        unit=request.unit,
        now=reader.now(),
    )
    said = read_named_coins(request.coins)
    spans = _spans(request, prices.bar_us)
    has_market = request.market is not None or len(prices.coins) > 1
    model = request.model or ("market" if has_market else "mean")
    markets = Markets()
    if model == "market":
        markets = read_markets(reader, request.market, prices, said, request.stamp, request.unit)
    returns = compute_returns(
        prices,
        kind=request.returns,
        market=markets.closes,
        market_of_coin=markets.of_coin,
        max_gap=request.max_gap,
        steps=request.redenominations,
    )
    known, today = _selected(reader, prices, request, lead)
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
            f"{_advise_news(request, counted)}"
        )
    naive_cars = naive.windows.cumulated[:, -1]
    return Study(
        returns=returns,
        placed=placed,
        figures=compute_figures(returns, placed.windows, options, prices.bar_us),
        naive=make_naive_table(naive.windows, prices.bar_us),
        naive_t=replace(cross_sectional(naive_cars), test="naive_t"),
        excluded=excluded,
        redenominations=_redenominations(prices, returns, markets),
        options=options,
        ambiguous=tuple(known.names.ambiguous),
        settings=_settings(request, lead, prices, spans, known, markets, placed.windows.model),
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


def _advise_news(request: StudyRequest, counted: "pd.Series[int]") -> str:
    if request.events is None or not counted.get("known_too_late"):
        return ""
    return (
        ' For a study of announcements, use events=db.announcements() and leave out lead, or "0d".'
    )


def _selected(
    reader: Reader, prices: Prices, request: StudyRequest, lead: timedelta
) -> tuple[SelectedEvents, SelectedEvents]:
    if request.events is not None:
        if request.categories is not None or request.min_impact is not None:
            raise InvalidArgument(
                "categories and min_impact select events of the warehouse; leave them out, and "
                "filter the frame of events= itself"
            )
        return read_given_events(
            reader, request.events, prices.coins, request.coins, lead, request.unit
        )
    span = (
        ORIGIN + int(prices.starts[0]) * US,
        ORIGIN + int(prices.starts[-1] + prices.bar_us - 1) * US,
    )
    return select_events(reader, prices.coins, request, lead, span)


def _check(request: StudyRequest) -> None:
    if request.model is not None:
        check_choice(request.model, "model", ("market", "mean"))
    check_choice(request.returns, "returns", ("log", "simple"))
    check_choice(request.stamp, "stamp", ("start", "end"))
    check_choice(request.bars, "bars", ("grid", "frame"))
    check_choice(request.redenominations, "redenominations", ("exclude", "keep"))
    if not 0 < request.confidence < 1:
        raise InvalidArgument(f"confidence={request.confidence!r}; expected a number in 0 to 1")
    if request.rounds < 99:
        raise InvalidArgument(f"rounds={request.rounds!r}; expected 99 or more")
    if request.seed < 0:
        raise InvalidArgument(f"seed={request.seed!r}; expected a whole number, 0 or more")
    if not 0 < request.min_estimation <= 1:
        raise InvalidArgument(
            f"min_estimation={request.min_estimation!r}; expected a share, 0 to 1"
        )
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
    return Spans(
        first, last, estimation, gap, max(10, int(np.ceil(request.min_estimation * estimation)))
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
    request: StudyRequest,
    lead: timedelta,
    prices: Prices,
    spans: Spans,
    known: SelectedEvents,
    markets: Markets,
    model: Model,
) -> dict[str, str]:
    market = markets.text if model == "market" else "none"
    is_kept = request.redenominations == "keep"
    counts = prices.counts
    last = {"last prices": f"{counts['partial_bars']:,} left out, since they are not whole bars"}
    return {
        "model": model,
        "market": market,
        "returns": request.returns,
        "lead": format_duration(lead),
        "basis": "given" if request.events is not None else request.basis,
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
        "names without a coin": shorten_names(known.names.unknown),
        "names of several coins": shorten_names(tuple(known.names.ambiguous)),
        "draws": f"{request.rounds:,}, seed {request.seed}",
        "confidence": f"{request.confidence:.0%}",
    }
