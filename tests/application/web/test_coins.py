"""The list of coins and the page of a coin: equal to SQL, as of now and of a past time."""

import re
from datetime import timedelta
from html import unescape

import httpx
import pytest

import almanac
from tests.application.mirror.filled_home import NOW, STARTS
from warehouse.home import Home

PAST = STARTS + timedelta(days=1, hours=2)
TIMES = pytest.mark.parametrize("at", [NOW, PAST], ids=["now", "past"])


def read(client: httpx.Client, path: str, at: object, **parameters: str) -> str:
    answer = client.get(path, params={**parameters, "as_of": f"{at:%Y-%m-%dT%H:%M:%SZ}"})
    assert answer.status_code == 200, answer.text
    return answer.text


@TIMES
def test_list_has_the_coins_and_counts_that_were_known(
    client: httpx.Client, filled_home: Home, at: object
) -> None:
    with almanac.open(filled_home.root) as database:
        rows = database.sql(
            "SELECT coin, count(*) AS events FROM "
            "(SELECT unnest(coins) AS coin FROM upcoming_as_of($at)) GROUP BY coin",
            at=at,
        ).rows()
        counts = {row["coin"]: row["events"] for row in rows}
        ranked = database.sql("SELECT coin, rank FROM coins_as_of($at)", at=at).rows()
    page = read(client, "/coins", at)
    found = re.findall(r'href="/coin/([^"?]+)\?.*?<td class="n">([\d,]+)</td></tr>', page, re.S)
    assert len(found) == 100
    assert all(int(shown) == counts.get(coin, 0) for coin, shown in found)
    by_rank = sorted((row["rank"], row["coin"]) for row in ranked if row["rank"] is not None)
    first = [coin for _, coin in by_rank[:20]]
    assert [coin for coin, _ in found[: len(first)]] == first


@TIMES
def test_page_of_a_coin_has_its_events_as_they_were_known(
    client: httpx.Client, filled_home: Home, at: object
) -> None:
    with almanac.open(filled_home.root) as database:
        rows = database.sql(
            "SELECT event_id FROM upcoming_as_of($at) WHERE list_contains(coins, 'bitcoin')", at=at
        ).rows()
    page = read(client, "/coin/bitcoin", at)
    (total,) = re.findall(r'Upcoming events <span class="dim">([\d,]+)</span>', page)
    upcoming = page[page.index("Upcoming events") : page.index("<h2>Changes")]
    shown = re.findall(r'href="/event/([^"?]+)\?', upcoming)
    assert int(total) == len(rows)
    assert len(shown) == min(60, len(rows))
    assert set(shown) <= {row["event_id"] for row in rows}


def test_ticker_stands_for_its_coin_and_an_unknown_one_is_refused(client: httpx.Client) -> None:
    slug = re.findall(r'href="/coin/([^"?]+)"', client.get("/coins").text)[0]
    assert client.get(f"/coin/{slug}").status_code == 200
    answer = client.get("/coin/no-such-coin")
    assert answer.status_code == 404
    assert "No coin has the slug, symbol or name" in unescape(answer.text)


def test_search_finds_a_part_of_a_name_and_says_if_there_is_none(client: httpx.Client) -> None:
    assert 'href="/coin/bitcoin"' in client.get("/coins", params={"q": "itco"}).text
    assert "No coin matches" in client.get("/coins", params={"q": "%"}).text
    assert client.get("/coins", params={"page": "9999"}).status_code == 400
