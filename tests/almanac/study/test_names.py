"""Names of coins in prices, events and arguments: pairs, mappings, ambiguous tickers."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import almanac
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

START = datetime(2026, 1, 5, tzinfo=UTC)
NOW = datetime(2026, 6, 30, tzinfo=UTC)
DAYS = pd.date_range("2025-06-01", "2026-06-30", freq="D", tz="UTC")
COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("ethereum", "ETH", "Ethereum", 2),
    NamedCoin("one-sun", "SUN", "One Sun"),
    NamedCoin("two-sun", "SUN", "Two Sun"),
    NamedCoin("highstreet", "HIGH", "Highstreet"),
    NamedCoin("nada", "NA", "Nada"),
]
EVENTS = [
    Known(
        event_id=f"{coin.slug} {number}",
        known_from=START,
        date=datetime(2026, 4, 2, tzinfo=UTC) + timedelta(days=4 * number + place % 3),
        coins=(coin.slug,),
    )
    for place, coin in enumerate(COINS)
    for number in range(12)
]
OPTIONS: dict[str, Any] = {"window": (-1, 1), "options": almanac.StudyOptions(rounds=99)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[almanac.Database]:
    file = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    pulls = [START + timedelta(days=day) for day in range(176)]
    publish_by_hand(file, EVENTS, pulls=pulls, at=NOW, coins=COINS)
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


def prices(*names: str) -> pd.DataFrame:
    random = np.random.default_rng(1)
    moves = 0.02 * random.standard_normal((len(DAYS), 1))
    moves = moves + 0.02 * random.standard_normal((len(DAYS), len(names)))
    return pd.DataFrame(100 * np.exp(moves.cumsum(axis=0)), index=DAYS, columns=list(names))


def bars() -> pd.DataFrame:
    close = prices("close")["close"]
    return pd.DataFrame(dict.fromkeys(("Open", "High", "Low", "Close"), close)).assign(Volume=1.0)


def own_events(*coins: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "event_id": [f"own {place}" for place in range(12)],
            "coin": [coins[place % len(coins)] for place in range(12)],
            "date": [datetime(2026, 3, 1 + 2 * place, tzinfo=UTC) for place in range(12)],
        }
    )


def used(study: almanac.Study) -> list[str]:
    return sorted(study.events["coin"].unique())


class TestPrices:
    def test_bars_of_one_coin_are_studied_with_a_market(self, db: almanac.Database) -> None:
        market = prices("m", "other")["other"]
        mine = bars().assign(coin="BTC")
        found = db.event_study(mine, market=market, **OPTIONS)
        assert used(found) == ["bitcoin"] and found.counts["used"] == 12
        with pytest.raises(almanac.InvalidArgument, match=r"one coin.*market="):
            db.event_study(
                mine, window=(-1, 1), options=almanac.StudyOptions(model="market", rounds=99)
            )
        alone = db.event_study(mine, **OPTIONS)
        assert alone.settings["model"] == "mean"
        assert "its own mean" in repr(alone)

    def test_a_mapping_names_coins_and_selects_none(self, db: almanac.Database) -> None:
        frame = prices("a", "SUN/USDT", "ETH")
        found = db.event_study(frame, coins={"a": "bitcoin", "SUN": "two-sun"}, **OPTIONS)
        assert used(found) == ["bitcoin", "ethereum", "two-sun"]
        assert found.ambiguous == ()

    @pytest.mark.parametrize("name", ["sun", "SUN/USDT"])
    def test_an_ambiguous_ticker_is_left_out_counted_and_named(
        self, db: almanac.Database, name: str, tmp_path: Path
    ) -> None:
        found = db.event_study(prices("BTC", name, "ETH"), **OPTIONS)
        assert used(found) == ["bitcoin", "ethereum"]
        assert found.ambiguous == (name,)
        assert found.counts["ambiguous_coin"] == 1
        assert found.settings["names of several coins"] == name
        assert f"several coins, left out of the events: {name}" in repr(found)
        assert f"left out of the events: {name}" in found.to_html(tmp_path / "study.html")

    def test_prices_of_ambiguous_tickers_alone_are_an_error(self, db: almanac.Database) -> None:
        with pytest.raises(almanac.AmbiguousCoin, match=r"one-sun.*coins="):
            db.event_study(prices("SUN", "index"), **OPTIONS)
        with pytest.raises(almanac.AmbiguousCoin, match="one-sun"):
            db.event_study(prices("a", "BTC"), coins={"a": "SUN"}, **OPTIONS)

    def test_two_names_of_one_coin_are_refused(self, db: almanac.Database) -> None:
        with pytest.raises(almanac.InvalidArgument, match="both the coin bitcoin"):
            db.event_study(prices("BTC/USDT", "bitcoin"), **OPTIONS)


class TestEventsOfTheUser:
    @pytest.mark.parametrize(
        ("in_prices", "in_events"), [("BTC", "bitcoin"), ("bitcoin", "BTC-USD")]
    )
    def test_both_sides_are_coins_and_no_texts(
        self, db: almanac.Database, in_prices: str, in_events: str
    ) -> None:
        found = db.event_study(
            prices(in_prices, "ETH", "index"), events=own_events(in_events, "ethereum"), **OPTIONS
        )
        assert found.counts["used"] == 12
        assert used(found) == ["bitcoin", "ethereum"]
        assert found.naive["n"].iloc[0] == 12

    def test_a_name_that_no_coin_has_is_that_of_the_prices(self, db: almanac.Database) -> None:
        found = db.event_study(
            prices("AAPL", "SUN", "BTC"), events=own_events("AAPL", "SUN"), **OPTIONS
        )
        assert used(found) == ["AAPL", "SUN"]

    def test_names_that_are_no_coin_with_prices_are_left_out_with_the_reason(
        self, db: almanac.Database
    ) -> None:
        events = own_events("BTC", "SUN", "nobody", "highstreet")
        found = db.event_study(prices("BTC", "ETH"), events=events, **OPTIONS)
        reasons = found.excluded.groupby("reason")["coin"].unique().map(list).to_dict()
        assert reasons == {
            "ambiguous_coin": ["SUN"],
            "unknown_coin": ["nobody"],
            "coin_without_prices": ["highstreet"],
        }
        assert found.counts["used"] == 3

    def test_an_event_that_has_a_coin_under_two_names_is_refused(
        self, db: almanac.Database
    ) -> None:
        twice = own_events("BTC", "bitcoin").assign(event_id="one", date=DAYS[300])
        with pytest.raises(almanac.InvalidArgument, match="a coin twice"):
            db.event_study(prices("BTC", "ETH"), events=twice, **OPTIONS)

    def test_coins_select_and_other_filters_are_refused(self, db: almanac.Database) -> None:
        events = own_events("BTC", "ETH")
        found = db.event_study(prices("BTC", "ETH"), events=events, coins=["BTC"], **OPTIONS)
        assert used(found) == ["bitcoin"]
        for more in ({"categories": "Listing"}, {"min_impact": 5.0}):
            with pytest.raises(almanac.InvalidArgument, match="filter the frame"):
                db.event_study(prices("BTC", "ETH"), events=events, **more, **OPTIONS)

    def test_frames_and_files_of_events_are_alike(
        self, db: almanac.Database, tmp_path: Path
    ) -> None:
        events = own_events("NA", "ETH")
        events.to_csv(tmp_path / "events.csv", index=False)
        events.to_parquet(tmp_path / "events.parquet")
        polars = pl.from_pandas(events)
        coded = events.astype({"coin": "category", "event_id": "category"})
        files = (tmp_path / "events.csv", str(tmp_path / "events.parquet"))
        for given in (coded, polars, *files):
            found = db.event_study(prices("nada", "ETH"), events=given, **OPTIONS)
            assert used(found) == ["ethereum", "nada"]

    @pytest.mark.parametrize("coin", [float("nan"), True])
    def test_a_coin_that_is_no_text_is_refused(self, db: almanac.Database, coin: Any) -> None:
        events = own_events("BTC").astype({"coin": object})
        events.loc[3, "coin"] = coin
        with pytest.raises(almanac.InvalidArgument, match="is not a text"):
            db.event_study(prices("BTC", "ETH"), events=events, **OPTIONS)


class TestMarkets:
    def test_each_coin_has_its_market(self, db: almanac.Database) -> None:
        frame = prices("BTC", "ETH", "NA", "index")
        apart = {
            coin: db.event_study(frame, coins=[coin], market=market, **OPTIONS)
            for coin, market in (("BTC", "index"), ("ETH", "nada"), ("NA", None))
        }
        together = db.event_study(frame, market={"bitcoin": "index", "ETHUSDT": "nada"}, **OPTIONS)
        for coin, study in apart.items():
            slug = db.resolve(coin).slug
            rows = together.events[together.events["coin"] == slug]
            columns = ["event_id", "alpha", "beta", "car"]
            pd.testing.assert_frame_equal(
                rows[columns].reset_index(drop=True), study.events[columns].reset_index(drop=True)
            )
        assert together.settings["market"].startswith("one per coin for 2 coins")

    @pytest.mark.parametrize(
        ("market", "message"),
        [
            ({"nobody": "ETH"}, "'nobody' has no prices"),
            ({"BTC": "nobody"}, "neither a coin"),
        ],
    )
    def test_a_market_that_belongs_to_no_prices_is_refused(
        self, db: almanac.Database, market: Any, message: str
    ) -> None:
        with pytest.raises(almanac.InvalidArgument, match=message):
            db.event_study(prices("BTC", "ETH"), market=market, **OPTIONS)
