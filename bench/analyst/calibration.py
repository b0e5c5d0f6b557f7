"""`python -m bench.analyst.calibration`: how often each test of the event study rejects.

Prices without any effect, over events as known three days before: cross-correlation 0.7, Student's
t, volatility clusters, 60 events on 15 days, of which half move or are cancelled. A test at 5 %
should reject in 5 % of the seeds. Then with a jump of 2 % on the day known at entry: how often is
it found? Beside them the naive study: today's dates, plain t. One core.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.table import Table

import almanac
from almanac.reader import Reader
from almanac.study.estimates import Draws, figures_of, naive_table
from almanac.study.prices import Floats, Prices
from almanac.study.returns import Model, returns_of
from almanac.study.selection import EventFilters, SelectedEvents, select
from almanac.study.windows import Spans, place
from bench.analyst.moving_home import BARS, FIRST, make_prices, publish_home

LEVEL, ROUNDS, JUMP = 0.05, 999, 0.02
LOW, HIGH, FOUND = 3.0, 7.0, 95.0
SHOWN: Final = ("headline", "naive", "cross_sectional_t", "adjusted_bmp", "grank")
NAMES = tuple(f"coin-{number}" for number in range(40))


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a kind of market, over a window; `must_find` if the jump should be found."""

    name: str
    model: Model
    is_foreign: bool
    window: tuple[int, int]
    degrees: float
    must_find: bool
    bars_a_day: int = 1


CASES: Final = (
    Case("market model, mean of the others, day 0", "market", False, (0, 0), 4.0, True),
    Case("market model, mean of the others, -1..+1", "market", False, (-1, 1), 4.0, True),
    Case("the same, t of 3 degrees", "market", False, (-1, 1), 3.0, True),
    Case("market model, market without the factor", "market", True, (0, 0), 4.0, False),
    Case("mean-adjusted, day 0", "mean", False, (0, 0), 4.0, False),
    Case("mean-adjusted, -3..+3", "mean", False, (-3, 3), 4.0, False),
    Case("the same, t of 3 degrees", "mean", False, (-3, 3), 3.0, False),
    Case(
        "hourly: market model, mean of the others, -6..+6", "market", False, (-6, 6), 4.0, True, 24
    ),
    Case("hourly: mean-adjusted, -6..+6", "mean", False, (-6, 6), 4.0, False, 24),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--only", default="", help="the cases whose name has this text")
    parser.add_argument("--volatility", type=float, default=0.03, help="of a day")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    started = time.perf_counter()
    found = calibrate(given.seeds, given.volatility, given.only)
    seconds = time.perf_counter() - started
    _show(found, given.seeds, seconds)
    if given.json is not None:
        given.json.write_text(json.dumps({"seeds": given.seeds, "cases": found}, indent=1))
    if given.seeds >= 500 and not all(case["holds"] for case in found):
        sys.exit(1)


def calibrate(seeds: int, volatility: float, only: str = "") -> list[dict[str, Any]]:
    """Return for each case the percentage of seeds in which each test rejects, without and with
    the jump, and whether the headline holds.
    """
    with TemporaryDirectory(prefix="almanac-calibration-") as temporary:
        home = publish_home(Path(temporary))
        with almanac.open(home.root) as db:
            _check_against_the_method(db)
        known, today = _selected(Reader(home.warehouse))
    assert len(known.rows) == 60, len(known.rows)
    chosen = [case for case in CASES if only in case.name]
    return [_calibrated(case, known, today, seeds, volatility) for case in chosen]


def _selected(reader: Reader) -> tuple[SelectedEvents, SelectedEvents]:
    filters = EventFilters(
        coins=None,
        categories=None,
        min_impact=None,
        lead=timedelta(days=3),
        basis="observed",
        dates="exact",
    )
    span = (FIRST, FIRST + timedelta(days=BARS))
    try:
        return select(reader, NAMES, filters, span)
    finally:
        reader.close()


def _calibrated(
    case: Case, known: SelectedEvents, today: SelectedEvents, seeds: int, volatility: float
) -> dict[str, Any]:
    rates: dict[str, dict[str, float]] = {}
    for what, jump in (("no effect", 0.0), ("jump", JUMP)):
        rejected: dict[str, int] = {}
        for seed in range(seeds):
            prices, foreign = make_prices(
                seed,
                degrees=case.degrees,
                correlation=0.7,
                volatility=volatility,
                jump=jump,
                bars_a_day=case.bars_a_day,
            )
            p = p_values(case, prices, foreign if case.is_foreign else None, known, today, seed)
            for test, value in p.items():
                rejected[test] = rejected.get(test, 0) + (value < LEVEL)
        rates[what] = {test: 100 * count / seeds for test, count in rejected.items()}
    size, power = rates["no effect"]["headline"], rates["jump"]["headline"]
    holds = LOW <= size <= HIGH and (power >= FOUND or not case.must_find)
    return {"case": case.name, "must_find": case.must_find, "holds": holds, **rates}


def p_values(
    case: Case,
    prices: Prices,
    foreign: Floats | None,
    known: SelectedEvents,
    today: SelectedEvents,
    seed: int,
) -> dict[str, float]:
    """Return p of the headline, of each test, and of the naive study."""
    returns = returns_of(prices, market=foreign)
    bars = 120 if case.bars_a_day == 1 else 240
    spans = Spans(case.window[0], case.window[1], estimation=bars, gap=10, least=84)
    placed = place(prices, returns, known.rows, spans, case.model, from_entry=True)
    figures = figures_of(returns, placed.windows, Draws(ROUNDS, seed, 0.95), prices.bar_us)
    naive = place(prices, returns, today.rows, spans, case.model, from_entry=False)
    return {
        "headline": figures.headline.p,
        "naive": float(naive_table(naive.windows, prices.bar_us)["p"].iloc[-1]),
        **{verdict.test: verdict.p for verdict in figures.verdicts},
    }


def _check_against_the_method(db: almanac.Database) -> None:
    """Check that the parts, as put together here, are `Database.event_study`."""
    prices, _ = make_prices(0, degrees=4.0, correlation=0.7, volatility=0.03, jump=0.0)
    known, today = _selected(Reader(db.path))
    index = pd.to_datetime(prices.starts, unit="us", utc=True)
    frame = pd.DataFrame(prices.close, index=index, columns=list(prices.coins))
    study = db.event_study(frame, window=(-1, 1), estimation=120, rounds=ROUNDS)
    p = p_values(CASES[1], prices, None, known, today, 0)
    assert abs(study.headline.p - p["headline"]) < 1e-12
    assert abs(study.naive["p"].iloc[-1] - p["naive"]) < 1e-9


def _show(found: list[dict[str, Any]], seeds: int, seconds: float) -> None:
    console = Console(highlight=False, width=150)
    console.print(f"{seeds} seeds, {seconds:.0f} s; rejected at 5 %, in % of the seeds")
    table = Table("case", "", *(name.replace("_", " ") for name in SHOWN), "headline holds")
    for case in found:
        for what in ("no effect", "jump"):
            figures = [f"{case[what][name]:.1f}" for name in SHOWN]
            first = what == "no effect"
            verdict = "" if not first else "yes" if case["holds"] else "NO"
            table.add_row(case["case"] if first else "", what, *figures, verdict)
    console.print(table)
    console.print(
        f"The headline holds if it rejects in {LOW:.0f} to {HIGH:.0f} % without an effect, and, "
        f"with the market of the coins, finds a jump of {JUMP:.0%} in {FOUND:.0f} %."
    )


if __name__ == "__main__":
    main()
