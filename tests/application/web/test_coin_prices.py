"""The line of prices on the page of a coin equals the file, and has nothing later than the page."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from starlette.routing import Router
from starlette.testclient import TestClient

from almanac.core.errors import AmbiguousCoin, InvalidArgument
from almanac.database import open_database
from application.web.coin_prices import read_coin_prices
from application.web.site import page_routes
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.application.web.handmade_site import DAY, FIRST, NOW, PULLS
from tests.warehouse.answers.handmade import Known

COINS = [NamedCoin("bitcoin", "btc", "Bitcoin", 1), NamedCoin("dash", "dash", "Dash", 2)]
HOURS = pd.date_range("2025-11-01", "2026-03-06", freq="h", tz="UTC")
PRICES = pd.DataFrame({"BTC": range(1, len(HOURS) + 1), "slug:none": 5.0, "SPX": 6.0}, index=HOURS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    versions = [
        Known(event_id=coin, known_from=FIRST, date=NOW + DAY, coins=(coin,))
        for coin in ("bitcoin", "dash")
    ]
    return publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=PULLS, coins=COINS)


@pytest.mark.parametrize("freq", ["h", "D"])
@pytest.mark.parametrize("at", [NOW, FIRST + DAY, FIRST])
def test_line_has_the_last_price_of_each_day_until_the_time(
    tmp_path: Path, file: Path, freq: str, at: datetime
) -> None:
    given = PRICES.resample(freq).last()
    given.reset_index(names="ts").to_csv(tmp_path / "prices.csv", index=False)
    with open_database(file, clock=lambda: NOW, trust_clock=True) as database:
        prices = read_coin_prices(tmp_path / "prices.csv", database.reader)
        client = TestClient(Router(page_routes(database, prices=prices)))
        page = client.get(f"/coin/bitcoin?as_of={at:%Y-%m-%dT%H:%M:%SZ}").text
        assert "daily price until then" in page
        assert 'class="price"' not in client.get("/coin/dash").text
    found = dict(re.findall(r' data-(times|closes)="(.*?)"', page))
    marks = dict(zip(found["times"].split(), map(float, found["closes"].split()), strict=True))
    bar = pd.Timedelta(1, freq)
    ended = given[(given.index + bar <= at) & (given.index + bar >= at - 90 * DAY)]["BTC"]
    last = ended.groupby(ended.index.floor("D")).tail(1)
    assert marks == {f"{start + bar:%Y-%m-%dT%H:%M:%SZ}": close for start, close in last.items()}
    assert len(marks) >= 90
    assert max(marks) <= f"{at:%Y-%m-%dT%H:%M:%SZ}"
    assert len(re.findall(r'points="(.*?)"', page)[0].split()) == len(marks)


def test_file_that_is_not_clear_is_refused(tmp_path: Path, file: Path) -> None:
    prices = tmp_path / "prices.csv"
    with open_database(file, clock=lambda: datetime(2026, 3, 4, tzinfo=UTC)) as database:
        for text, error in (("", InvalidArgument), ("ts,BTC\nx,1\n", InvalidArgument)):
            prices.write_text(text)
            with pytest.raises(error):
                read_coin_prices(prices, database.reader)
    twins = [*COINS, NamedCoin("twin", "btc", "Twin")]
    publish_by_hand(file, [], pulls=PULLS, coins=twins)
    prices.write_text("ts,BTC\n2026-03-01,1\n2026-03-02,2\n")
    with open_database(file, clock=lambda: NOW) as database, pytest.raises(AmbiguousCoin):
        read_coin_prices(prices, database.reader)
