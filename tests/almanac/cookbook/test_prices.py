"""The prices beside the cookbook are those of their generator, and have the effect it plants."""

import io
import math

import pandas as pd

from tests.almanac.cookbook.page import DOCS
from tests.almanac.cookbook.prices import LISTED, RUN_UP, effects, listings, write

FILE = DOCS / "prices.csv"


def test_the_committed_prices_are_those_of_the_generator_to_a_rounding() -> None:
    made = io.StringIO()
    write(made)
    made.seek(0)
    shown, again = (pd.read_csv(source, index_col="ts") for source in (FILE, made))
    # The last digit may depend on the logarithms of a platform.
    pd.testing.assert_frame_equal(shown, again, rtol=2e-3)
    assert FILE.stat().st_size <= 60_000


def test_days_of_kept_listings_return_what_was_planted_and_other_days_nothing() -> None:
    prices = pd.read_csv(FILE, index_col="ts", parse_dates=["ts"])
    returns = prices.apply(lambda column: column.map(math.log).diff())
    market = returns.median(axis=1)
    abnormal = returns.sub(market, axis=0)
    planted = pd.DataFrame(0.0, index=returns.index, columns=returns.columns)
    for history in listings():
        for day, by in effects(history).items():
            for coin in {*history[-1].event.coins} & {*returns.columns}:
                if day.replace(tzinfo=None) in planted.index:
                    planted.loc[day.replace(tzinfo=None), coin] += by
    for by in (LISTED, RUN_UP):
        days = abnormal[planted == by].stack().dropna()
        assert len(days) > 20
        assert abs(days.mean() - by) < 3 * days.std() / len(days) ** 0.5
    assert abs(abnormal[planted == 0].stack().dropna().mean()) < 0.002
