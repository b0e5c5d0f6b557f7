"""The list of coins, the page of a coin, and the search equal SQL on what was known then."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from almanac.database import Database
from tests.almanac.publications import NamedCoin
from tests.application.mirror.filled_home import NOW, STARTS
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
from tests.application.web.handmade_site import NOW as HANDMADE_NOW
from tests.warehouse.answers.handmade import Known

PAST = STARTS + timedelta(days=1, hours=2)


@pytest.mark.parametrize("at", [NOW, PAST], ids=["now", "past"])
def test_list_has_the_coins_known_then(
    client: httpx.Client, database: Database, at: datetime
) -> None:
    ahead = database.sql(
        "SELECT coin, count(*) AS upcoming, "
        "count(*) FILTER (date_precision IN ('instant', 'day')) > 0 AS has_next "
        "FROM (SELECT unnest(coins) AS coin, * FROM upcoming_as_of($at)) GROUP BY coin",
        at=at,
    ).rows()
    ranked = database.sql("FROM coins_as_of($at) WHERE rank IS NOT NULL ORDER BY rank", at=at)
    given = {"as_of": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    answer = client.get("/coins", params={**given, "format": "json"}).json()
    found = answer["rows"]
    assert answer["as_of"] == given["as_of"]
    assert {
        row["coin"]: (row["upcoming"], row["next_id"] is not None)
        for row in found
        if row["upcoming"]
    } == {row["coin"]: (row["upcoming"], row["has_next"]) for row in ahead}
    assert [row["coin"] for row in found if row["rank"]] == [row["coin"] for row in ranked.rows()]
    page = client.get("/coins", params=given).text
    shown = re.findall(r'<th scope="row"><a href="/coin/([^"?]+)', page)
    assert shown == [row["coin"] for row in found][:60]


COINS = [
    NamedCoin("bitcoin", "btc", "Bitcoin", 1),
    NamedCoin("aave", "aave", "Aave", 2),
    NamedCoin("dash", "dash", "Dash", 3),
    NamedCoin("other-dash", "dash", "Another", 4),
]


def make_event(name: str, days: float, *coins: str, **options: object) -> Known:
    date = HANDMADE_NOW + days * DAY
    given = {"title": name, "date": date, "displayed_date": f"{date:%d %b}", "coins": coins}
    return Known(event_id=name, known_from=FIRST, **(given | options))  # type: ignore[arg-type]


EVENTS = [
    make_event("Soon", 1, "dash"),
    make_event("Later", 9, "dash", "aave"),
    make_event("Listing of 100%", 5, "aave", categories=("Listing",)),
    make_event("Over", -1, "bitcoin", "other-dash"),
    make_event("Off", 2, "bitcoin", status="cancelled", change_kinds=("cancelled",)),
]


@pytest.fixture(scope="module")
def handmade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve_pages(tmp_path_factory.mktemp("c"), EVENTS, coins=COINS) as client:
        yield client


SORTS = {
    "rank": ["aave", "dash", "bitcoin", "other-dash"],
    "name": ["aave", "other-dash", "bitcoin", "dash"],
    "upcoming": ["aave", "dash", "bitcoin", "other-dash"],
    "next": ["dash", "aave", "bitcoin", "other-dash"],
}


def test_coins_are_sorted_and_name_the_next_event(handmade: TestClient) -> None:
    for sort, order in SORTS.items():
        page = handmade.get("/coins", params={"sort": sort}).text
        assert re.findall(r'<th scope="row"><a href="/coin/([^"]+)', page) == order, sort
        assert page.count("aria-sort=") == 1
    assert handmade.get("/coins", params={"sort": "size"}).status_code == 400
    assert handmade.get("/coins", params={"format": "xml"}).status_code == 400
    rows = handmade.get("/coins", params={"format": "json"}).json()["rows"]
    assert [row["next_title"] for row in rows] == ["Listing of 100%", "Soon", None, None]
    first = handmade.get("/coins?format=json&q=dash&limit=1").json()["rows"]
    assert [row["coin"] for row in first] == ["dash"]
    assert handmade.get("/coins?format=json&limit=0").status_code == 400


def test_star_is_kept_in_the_address(handmade: TestClient) -> None:
    page = handmade.get("/coins", params={"coins": "btc", "sort": "name"}).text
    links = [unescape(link) for link in re.findall(r'class="star" href="([^"]+)"', page)]
    kept = ["slug%3Abitcoin%2Cslug%3Aaave", "slug%3Abitcoin%2Cslug%3Aother-dash", None]
    for link, coins in zip(links, kept, strict=False):
        assert link == "/coins?sort=name" + ("" if coins is None else f"&coins={coins}")
    assert 'href="/changes?coins=btc"' in page
    assert '<a href="/quality">' in page
    kept, starred = "coins=slug%3Abitcoin%2Cslug%3Aaave", {"coins": "btc,slug:aave"}
    found = handmade.get("/search", params={"q": "slug:dash", **starred})
    assert found.url.params["coins"] == starred["coins"]
    assert f'<a href="/?{kept}%2Cslug%3Adash">☆ Watch with 2 others</a>' in found.text
    page = handmade.get("/", params={**starred, "when": "all"}).text
    assert '<input type="hidden" name="coins" value="btc,slug:aave">' in page
    assert 'href="/coin/aave?coins=btc%2Cslug%3Aaave"' in page
    assert (
        f'<a href="/?{kept}">☆ Watch with 1 other</a>'
        in handmade.get("/coin/aave", params=starred).text
    )


def test_coin_page_divides_its_events_at_the_present(handmade: TestClient) -> None:
    page = handmade.get("/coin/dash").text
    ahead, past = page.split("Past, cancelled")
    assert [name for name in ("Soon", "Later") if name in ahead] == ["Soon", "Later"]
    assert "None is known" in past
    ahead, past = handmade.get("/coin/BTC").text.split("Past, cancelled")
    assert "No upcoming event is known" in ahead
    assert all(name in past for name in ("Over", "Off"))
    answer = handmade.get("/coin/no-such-coin")
    assert answer.status_code == 404
    assert "No coin has the slug, symbol or name" in unescape(answer.text)


def test_search_leads_to_a_coin_or_lists_coins_and_events(handmade: TestClient) -> None:
    for text in ("btc", "BTC/USDT", "bitcoin", "Bitcoin"):
        answer = handmade.get("/search", params={"q": text}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/coin/bitcoin")
    best = handmade.get("/search", params={"q": "dash"})
    assert (best.url.path, best.url.params["asked"]) == ("/coin/dash", "dash")
    assert re.search(r'dash is also <a href="/coin/other-dash">', best.text)
    for words in ("LIST", "100% lísting", "listing AAVE"):
        page = handmade.get("/search", params={"q": words}).text
        assert re.findall(r'href="/event/([^"]+)"', page) == ["Listing%20of%20100%25"]
        assert f"in the {'coin' if 'AAVE' in words else 'title'}</span>" in page
    found = handmade.get("/search", params={"q": "Listing of 100%"}, follow_redirects=False)
    assert found.headers["location"] == "/event/Listing%20of%20100%25"
    rows = handmade.get("/coin/dash?format=json").json()
    assert rows["coin"]["coin"] == "dash"
    assert [row["event_id"] for row in rows["rows"]] == ["Soon", "Later"]
    assert "No coin and no event" in handmade.get("/search", params={"q": "%%"}).text
    assert "No coin matches" in handmade.get("/coins", params={"q": "%"}).text
    assert handmade.get("/search", follow_redirects=False).headers["location"] == "/"


def test_coins_of_one_ticker_are_offered_by_their_ranks_at_the_time(tmp_path: Path) -> None:
    ranked = {FIRST: {"other-dash": 1}, FIRST + 2 * DAY: {"other-dash": 4, "dash": 3}}
    with serve_pages(tmp_path, EVENTS[3:], coins=COINS, ranked=ranked) as client:
        now = client.get("/search?q=dash")
        assert now.url.path == "/coin/dash"
        assert re.search(r"dash is also .*rank 4", now.text)
        past = client.get("/search", params={"q": "dash", "as_of": f"{FIRST:%Y-%m-%dT%H:%M:%SZ}"})
        assert (past.url.path, "asked" in past.url.params) == ("/coin/other-dash", False)
