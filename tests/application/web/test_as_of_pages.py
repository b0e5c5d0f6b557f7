"""Pages at a past time, and the list of coins, equal SQL on what was known then."""

import re
from datetime import datetime, timedelta
from html import unescape
from random import Random
from urllib.parse import unquote

import httpx
import pytest

import almanac
from almanac.database import Database
from tests.application.mirror.filled_home import NOW, STARTS
from warehouse.home import Home

MICROSECOND = timedelta(microseconds=1)
_EVENT = re.compile(
    r'<span class="title"><a href="/event/([^"?]+)\?as_of=[^"]+"><bdi>(.*?)</bdi></a>', re.DOTALL
)


def random_times(database: Database, count: int) -> list[datetime]:
    """Return times in the history: at a change, a moment before it, and anywhere."""
    chance = Random(37)
    rows = database.sql("SELECT DISTINCT known_from FROM event_versions ORDER BY known_from").rows()
    changes = [row["known_from"] for row in rows]
    found = [chance.choice(changes) for _ in range(count // 3)]
    found += [at - MICROSECOND for at in found]
    span = (NOW - STARTS) / MICROSECOND
    found += [STARTS + chance.random() * span * MICROSECOND for _ in range(count)]
    return [at for at in found if at >= changes[0]][:count]


class PastSite:
    """Reads the pages as of a time."""

    def __init__(self, client: httpx.Client, at: datetime) -> None:
        self._client = client
        self._as_of = f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"

    def get(self, path: str, **parameters: str) -> httpx.Response:
        return self._client.get(path, params={**parameters, "as_of": self._as_of})

    def list_upcoming(self, dates: str) -> dict[str, str]:
        """Return id and title of each event, from all pages of the list."""
        found: dict[str, str] = {}
        number = 1
        while True:
            page = self.get("/", when="all", dates=dates, page=str(number))
            assert page.status_code == 200, page.text
            for event_id, title in _EVENT.findall(page.text):
                assert unquote(event_id) not in found, "two pages list one event"
                found[unquote(event_id)] = unescape(title)
            if 'rel="next"' not in page.text:
                return found
            number += 1


def check_upcoming(site: PastSite, database: Database, at: datetime, *, is_exact: bool) -> None:
    rows = database.sql(
        "SELECT event_id, title FROM upcoming_as_of($at) "
        "WHERE coalesce(date_precision IN ('instant', 'day'), false) = $is_exact",
        at=at,
        is_exact=is_exact,
    ).rows()
    expected = {row["event_id"]: " ".join(row["title"].split()) for row in rows}
    assert site.list_upcoming("exact" if is_exact else "estimated") == expected, at


def check_events(site: PastSite, database: Database, at: datetime, chance: Random) -> None:
    rows = database.sql(
        "SELECT event_id, count(*) FILTER (known_from <= $at) AS versions, "
        "arg_max(title, version) FILTER (known_from <= $at) AS title, "
        "list(displayed_date_full) FILTER (known_from > $at) AS later "
        "FROM event_versions GROUP BY event_id ORDER BY event_id",
        at=at,
    ).rows()
    many = [row for row in rows if row["versions"] > 1 or row["later"]]
    for row in chance.sample(rows, 3) + chance.sample(many, min(4, len(many))):
        page = site.get(f"/event/{row['event_id']}")
        if not row["versions"]:
            assert page.status_code == 404, (at, row)
            assert "not known then" in page.text
            continue
        assert page.status_code == 200, (at, row)
        timeline = page.text[page.text.index('<ol class="timeline"') :]
        assert timeline.count("· version ") == row["versions"], (at, row)
        assert unescape(page.text).count(row["title"]) >= 1, (at, row)


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
def test_pages_show_what_was_known(client: httpx.Client, database: Database, count: int) -> None:
    chance = Random(37)
    for number, at in enumerate(random_times(database, count)):
        site = PastSite(client, at)
        check_upcoming(site, database, at, is_exact=number % 3 > 0)
        check_events(site, database, at, chance)


def test_a_time_without_an_answer_gets_a_page_with_the_reason(client: httpx.Client) -> None:
    wrong = {"1999-01-01": 422, "2999-01-01": 400, "yesterday's": 400}
    for as_of, status in wrong.items():
        for path in ("/", "/coins", "/coin/bitcoin"):
            answer = client.get(path, params={"as_of": as_of})
            assert answer.status_code == status, (path, answer.text)
            assert 'role="alert"' in answer.text


PAST = STARTS + timedelta(days=1, hours=2)


@pytest.mark.parametrize("at", [NOW, PAST], ids=["now", "past"])
def test_list_has_the_coins_known_then(client: httpx.Client, filled_home: Home, at: object) -> None:
    with almanac.open(filled_home.root) as database:
        rows = database.sql(
            "SELECT coin, count(*) AS events FROM "
            "(SELECT unnest(coins) AS coin FROM upcoming_as_of($at)) GROUP BY coin",
            at=at,
        ).rows()
        counts = {row["coin"]: row["events"] for row in rows}
        ranked = database.sql("SELECT coin, rank FROM coins_as_of($at)", at=at).rows()
    page = client.get("/coins", params={"as_of": f"{at:%Y-%m-%dT%H:%M:%SZ}"}).text
    found = re.findall(r'href="/coin/([^"?]+)\?.*?<td class="n">([\d,]+)</td></tr>', page, re.S)
    assert len(found) == 100
    assert all(int(shown) == counts.get(coin, 0) for coin, shown in found)
    by_rank = sorted((row["rank"], row["coin"]) for row in ranked if row["rank"] is not None)
    first = [coin for _, coin in by_rank[:20]]
    assert [coin for coin, _ in found[: len(first)]] == first


def test_coin_is_found_by_slug_or_a_part_of_its_name(client: httpx.Client) -> None:
    slug = re.findall(r'href="/coin/([^"?]+)"', client.get("/coins").text)[0]
    assert client.get(f"/coin/{slug}").status_code == 200
    answer = client.get("/coin/no-such-coin")
    assert answer.status_code == 404
    assert "No coin has the slug, symbol or name" in unescape(answer.text)
    assert 'href="/coin/bitcoin"' in client.get("/coins", params={"q": "itco"}).text
    assert "No coin matches" in client.get("/coins", params={"q": "%"}).text
    assert client.get("/coins", params={"page": "9999"}).status_code == 400
