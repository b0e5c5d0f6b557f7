"""`python -m bench.study_size`: how often each test of an event study rejects without an effect.

Samples are drawn prices of correlated coins with heavy tails and clustered volatility, and events
that share days (`tests/almanac/study/worlds.py`). Sample n has the seed n. A test that holds its
size rejects 5 % at the nominal 5 %; of 500 samples, chance alone gives 3.2 to 7.0 %.
"""

import argparse
from collections import defaultdict

import numpy as np
from rich.console import Console
from rich.table import Table

from almanac.study.estimates import Draws, compute_figures
from almanac.study.options import Model
from almanac.study.returns import compute_returns
from almanac.study.windows import Spans, fit_windows
from tests.almanac.study.worlds import DAY_US, Shape, make_world

SHAPES = (
    ("60 events on 15 days", Shape(), (-1, 1)),
    ("180 events on 15 days", Shape(events=180), (-1, 1)),
    ("60 events on 15 days", Shape(), (-3, 3)),
    ("400 events on 200 days", Shape(days=200, events=400), (0, 9)),
)
MODELS: tuple[Model, ...] = ("market", "mean")


def count_rejections(
    shape: Shape, window: tuple[int, int], model: Model, samples: int
) -> dict[str, int]:
    """Return the number of samples in which each test rejects at 5 %."""
    rejected: dict[str, int] = defaultdict(int)
    for seed in range(samples):
        prices, zero, coin, _ = make_world(seed, shape)
        spans = Spans(*window, estimation=120, gap=10, least=60)
        returns = compute_returns(prices)
        windows, usable = fit_windows(returns, zero, coin, zero + window[0], spans, model)
        assert usable.all()
        draws = Draws(rounds=499, seed=seed, confidence=0.95)
        for verdict in compute_figures(returns, windows, draws, DAY_US).verdicts:
            assert np.isfinite(verdict.p), verdict
            rejected[verdict.test] += verdict.p < 0.05
    return rejected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=500)
    samples = parser.parse_args().samples
    table = Table(title=f"Rejected at 5 %, {samples} samples without an effect")
    tests: list[str] = []
    for name, shape, window in SHAPES:
        for model in MODELS:
            rejected = count_rejections(shape, window, model, samples)
            if not tests:
                tests = list(rejected)
                for column in ("sample", "window", "model", *tests):
                    table.add_column(column)
            shares = (f"{rejected[test] / samples:.1%}" for test in tests)
            table.add_row(name, str(window), model, *shares)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
