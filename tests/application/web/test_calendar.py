import logging
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import icalendar
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from almanac.database import open_database
from application.web.calendar_routes import CalendarRoutes
from application.web.mirror.mirror import SiteContext
from application.web.site import WebSite
from catalog.contract.plans import PLANS
from catalog.server.accounts import KeyBook
from catalog.server.service_dir import ServiceDir
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.application.mirror.filled_home import ENDS, NOW, STARTS, mirroring
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, event
from tests.warehouse.answers.handmade import Known
from warehouse.history.merge import rebuild
from warehouse.home import Home


def test_feed_is_a_calendar_that_a_client_can_keep(client: httpx.Client) -> None:
    answer = client.get("/calendar.ics")
    assert (answer.status_code, answer.headers["content-type"]) == (
        *(200, "text/calendar; charset=utf-8"),
    )
    assert "no-cache" in answer.headers["cache-control"]
    assert icalendar.Calendar.from_ical(answer.content).walk("VEVENT")
    for condition in (
        {"if-none-match": answer.headers["etag"]},
        {"if-none-match": f'"other", {answer.headers["etag"].removeprefix("W/")}'},
        {"if-modified-since": answer.headers["last-modified"]},
    ):
        again = client.get("/calendar.ics", headers=condition)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]
    other = {"if-none-match": '"other"', "if-modified-since": answer.headers["last-modified"]}
    assert client.get("/calendar.ics", headers=other).status_code == 200
    assert client.head("/calendar.ics").status_code == 200
    assert (
        client.get("/calendar.ics", headers={"accept-encoding": "gzip"}).headers["content-encoding"]
        == "gzip"
    )


def read_plainly(content: bytes) -> dict[str, tuple[str, str, bool]]:
    """Return start, time of change, and whether it is cancelled, of each event."""
    found = {}
    for part in content.decode().replace("\r\n ", "").split("BEGIN:VEVENT")[1:]:
        lines = [line.partition(":") for line in part.splitlines()]
        fields = {name.partition(";")[0]: value for name, _, value in lines}
        found[fields["UID"].partition("@")[0]] = (
            *(fields["DTSTART"], fields["LAST-MODIFIED"]),
            fields["STATUS"] == "CANCELLED",
        )
    return found


def test_feed_of_a_past_time_has_the_events_known_then(
    filled_home: Home, client: httpx.Client
) -> None:
    """The feed and `events_as_of` of the whole history, at some times."""
    chance = random.Random(37)
    span = (ENDS - STARTS).total_seconds()
    moments = [STARTS + timedelta(seconds=chance.uniform(0, span)) for _ in range(6)]
    seen = set()
    with open_database(filled_home.warehouse, clock=lambda: NOW) as db:
        for moment in moments:
            text = moment.isoformat().replace("+00:00", "Z")
            answer = client.get(
                "/calendar.ics",
                params={"as_of": text, "from": "2000-01-01", "estimated": "include"},
            )
            assert answer.status_code == 200, answer.text
            found = read_plainly(answer.content)
            rows = db.sql(
                "SELECT event_id, status, date, date_precision, latest, changed_at, missing_since "
                "FROM events_as_of($at) WHERE date IS NOT NULL",
                at=text,
            ).rows()
            assert set(found) == {row["event_id"] for row in rows}
            for row in rows:
                start, changed, is_cancelled = found[row["event_id"]]
                if row["date_precision"] == "instant":
                    assert start == f"{row['date']:%Y%m%dT%H%M%SZ}"
                elif row["date_precision"] == "day":
                    assert start == f"{row['date']:%Y%m%d}"
                else:
                    assert start == f"{row['latest'] - timedelta(microseconds=1):%Y%m%d}"
                assert f"{row['changed_at']:%Y%m%dT%H%M%SZ}" <= changed
                assert changed <= f"{moment:%Y%m%dT%H%M%SZ}"
                assert is_cancelled == (row["status"] != "scheduled")
            seen.add(frozenset(found.items()))
    assert len(seen) > 3


def test_filters_select_the_events_of_the_database(filled_home: Home, client: httpx.Client) -> None:
    window, coins = ("2026-02-20", "2026-03-20"), "SELECT mode(coin) AS coin FROM event_coins"
    with open_database(filled_home.warehouse, clock=lambda: NOW) as db:
        slug = db.sql(coins).rows()[0]["coin"]
        every = db.events(window=window, status="scheduled").rows()
        word = every[0]["title"].split()[0]
        for query, filters in (
            (f"coins=slug:{slug}", {"coins": slug}),
            (f"coins={slug}/USDT", {"coins": slug}),
            ("min_impact=5", {"min_impact": 5}),
            ("min_impact=high", {"min_impact": 5}),
            (f"q={word.upper()}", None),
        ):
            rows = every
            if filters is None:
                rows = [row for row in every if word.lower() in row["title"].lower()]
            else:
                rows = db.events(window=window, status="scheduled", **filters).rows()
            found = {row["event_id"] for row in rows}
            estimated = {row["event_id"] for row in rows if row["is_estimated"]}
            address = f"/calendar.ics?{query}&from={window[0]}&to={window[1]}&cancelled=drop"
            assert uids(client.get(address)) == found - estimated != set()
            assert uids(client.get(f"{address}&estimated=include")) == found
            assert uids(client.get(f"{address}&estimated=only")) == estimated


def uids(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    events = icalendar.Calendar.from_ical(answer.content).walk("VEVENT")
    return {str(event["uid"]).partition("@")[0] for event in events}


WRONG = {
    "coin=btc": "there is no parameter 'coin'; the parameters are coins, ambiguous, categories",
    "impact=5": "there is no parameter 'impact'",
    "when=7d": "there is no parameter 'when'",
    "coins=no-such-coin": "no coin has the slug, symbol or name",
    "categories=Nothing": "no event has the category",
    "min_impact=higher": "expected a score from 0 to 10, or Low, Mid, High, Critical",
    "min_impact=11": "from 0 to 10",
    "min_impact=1&min_impact=2": "min_impact is given more than once",
    "estimated=exact": "expected include, drop, only",
    "cancelled=no": "expected show, drop",
    "event=%00%0d%0aX:1": "no event with the id",
    "from=tomorrowish": "from='tomorrowish' is not a timestamp",
    "from=2026-03-02&to=2026-03-01": "is not after from",
    "as_of=x": "as_of",
    "limit=0": "a number from 1",
    "max_rank=1e9": "a number from 1",
}


def test_wrong_parameter_is_refused_with_the_reason(client: httpx.Client) -> None:
    for query, message in WRONG.items():
        answer = client.get(f"/calendar.ics?{query}")
        assert (answer.status_code, message in answer.text) == (400, True), (query, answer.text)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    for as_of, message in (("2020-01-01", "before the first pull"), ("2999-01-01", "to come")):
        answer = client.get(f"/calendar.ics?as_of={as_of}")
        assert (answer.status_code, message in answer.text) == (422, True)


def test_ambiguous_ticker_is_refused_with_the_coins(tmp_path: Path) -> None:
    coins = [NamedCoin("solana", "sol", "Solana", 5), NamedCoin("solix", "sol", "Solix", 900)]
    known = Known(event_id="evt", known_from=STARTS, date=NOW, coins=("solix",))
    file = publish_by_hand(tmp_path / "warehouse.duckdb", [known], pulls=[STARTS], coins=coins)
    place = SiteContext(file, lambda: NOW, KeyBook(), False, b"secret", base_path="/almanac")
    assert "secret" not in repr(place).replace("secret=", "")
    with open_database(file, clock=lambda: NOW) as db:
        routes = CalendarRoutes(db, place, lambda scope: None).routes()
        client = TestClient(Starlette(routes=routes))
        answer = client.get("/calendar.ics?coins=SOL")
        assert answer.status_code == 400
        assert "slug:solana (Solana), slug:solix (Solix). Choose one" in answer.text
        assert "coins_are" not in answer.text
        page = client.get("/calendar?coins=SOL")
        assert page.status_code == 400
        assert 'href="/almanac/calendar?coins=slug%3Asolix"><bdi>Solix</bdi></a>' in page.text
        assert "/calendar.ics" not in page.text
        assert client.get("/calendar.ics?coins=slug:solix").text.count("BEGIN:VEVENT") == 1
        page = client.get("/calendar?coins=slug:solix")
        assert 'value="http://testserver/almanac/calendar.ics?coins=slug%3Asolix"' in page.text


def test_truncated_feed_says_so(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = client.get("/calendar.ics?limit=3")
    assert len(uids(answer)) == 3
    assert re.fullmatch(r"3 of \d+ events", answer.headers["x-truncated"])
    assert "a calendar has 3 of" in caplog.text
    assert "x-truncated" not in client.get("/calendar.ics").headers


def test_page_builds_the_address_of_the_feed(client: httpx.Client) -> None:
    """Of the filters of a list. What a calendar does not have is named."""
    kept = {"min_impact": "5", "estimated": "include", "as_of": "2026-02-27"}
    dropped = {"when": "7d", "view": "month", "sort": "impact", "page": "2"}
    dropped |= {"kinds": "cancelled", "last": "7d", "since": "2026-02-26", "until": "2026-02-27"}
    page = client.get("/calendar", params={**kept, **dropped, "coins": ""})
    assert page.status_code == 200
    assert parse_qs(urlsplit(shown_address(page)).query) == {k: [v] for k, v in kept.items()}
    count = len(uids(client.get("/calendar.ics", params=kept)))
    assert f">{count:,} event" in page.text
    assert "Google and Microsoft fetch from their own servers" in page.text
    (named,) = re.findall("Not kept from the list: (.*)\\.", page.text)
    names = re.findall("<code>(.*?)</code>", named.partition(". A calendar")[0])
    assert names == [f"{name}={value}" for name, value in dropped.items()]
    assert "A calendar has all days to come" in named
    assert "Not kept" not in client.get("/calendar", params=kept).text
    left_out = "Events without an exact date are left out"
    assert left_out not in page.text and left_out in client.get("/calendar").text
    wrong = ("wen=7d", "event=nothing", "estimated=hide", "to=soon")
    statuses = [client.get(f"/calendar?{query}").status_code for query in wrong]
    assert statuses == [400, 404, 400, 400]
    hostile = client.get("/calendar", params={"coins": '"><script>alert(1)</script>'})
    assert (hostile.status_code, "<script>alert" in hostile.text) == (404, False)


def shown_address(page: httpx.Response) -> str:
    (address,) = re.findall(r'class="address" readonly value="([^"]+)"', page.text)
    assert f'href="webcal:{address.partition(":")[2]}">Subscribe<' in page.text
    assert urlsplit(unescape(address)).path == "/calendar.ics"
    return unescape(address)


@pytest.fixture
def guarded(filled_home: Home, tmp_path: Path) -> Iterator[tuple[httpx.Client, str, str]]:
    """Yield a client of a mirror that other machines reach, its key, and the id of the key."""
    key, stored = ServiceDir(tmp_path).key_book().create("desk", PLANS["enterprise"])
    with mirroring(filled_home, tmp_path, site=WebSite, host="0.0.0.0") as (_, client):
        yield client, key, stored.id


def token_address(client: httpx.Client, key: str) -> str:
    page = client.get("/calendar?min_impact=5", auth=("anyone", key))
    # Compressed, the size of a page with a guess in `q` would tell whether the token has it.
    assert page.headers["content-encoding"] == "identity"
    parts = urlsplit(shown_address(page))
    return f"{parts.path}?{parts.query}"


def test_feed_off_loopback_needs_the_key_or_its_token(
    guarded: tuple[httpx.Client, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, key, key_id = guarded
    caplog.set_level(logging.DEBUG)
    assert client.get("/calendar.ics").status_code == 401
    assert client.get("/calendar").status_code == 401
    expected = client.get("/calendar.ics?min_impact=5", auth=("anyone", key))
    assert expected.status_code == 200
    address = token_address(client, key)
    answer = client.get(address)
    assert (answer.status_code, answer.content) == (200, expected.content)
    token = parse_qs(urlsplit(address).query)["token"][0]
    assert token.encode() not in answer.content
    assert key not in address

    # The token opens the calendar alone, and as it is alone.
    for path in ("/", "/calendar", "/v2/events", "/event/x"):
        assert client.get(f"{path}?token={token}").status_code in (401, 403)
    for wrong in (token[:-1], token + "A", token.swapcase(), "", key):
        answer = client.get("/calendar.ics", params={"token": wrong})
        assert answer.status_code == 401
        assert "The token of this address is wrong, or its key was revoked" in answer.text
    assert client.get(f"/calendar.ics?token={token}&token={token}").status_code == 401
    assert client.get(f"/calendar.ics?token={token}&min_impact=x").status_code == 400

    ServiceDir(tmp_path).key_book().revoke(key_id)
    assert client.get(address).status_code == 401
    # The client's own lines aside.
    logged = [record.getMessage() for record in caplog.records if record.name[:4] != "http"]
    assert not [line for line in logged if token in line or key in line]


def test_token_outlives_a_restart_and_is_of_one_key(filled_home: Home, tmp_path: Path) -> None:
    book = ServiceDir(tmp_path).key_book()
    keys = [book.create(name, PLANS["enterprise"])[0] for name in ("first", "second")]
    poor, _ = book.create("poor", PLANS["pro"])
    addresses = []
    for _ in range(2):
        with mirroring(filled_home, tmp_path, site=WebSite, host="0.0.0.0") as (_, client):
            addresses.append([token_address(client, key) for key in keys])
            assert client.get("/calendar", auth=("anyone", poor)).status_code == 403
    assert addresses[0] == addresses[1]
    assert len(set(addresses[0])) == 2


def test_sequence_grows_when_a_refold_removes_and_returns_a_version(tmp_path: Path) -> None:
    home, found, tags = HandmadeHome(tmp_path / "home"), [], [""]
    home.listed("02 06:00", event("evt"))
    home.merge()
    file, now = home.home.warehouse, NOW + timedelta(days=9)
    place = SiteContext(file, lambda: now, KeyBook(), False, b"secret", dict)
    with without_syncs(), open_database(file, clock=lambda: now) as db:
        routes = CalendarRoutes(db, place, lambda scope: None).routes()
        client = TestClient(Starlette(routes=routes))

        def fetch() -> None:
            answer = client.get("/calendar.ics", headers={"if-none-match": tags[-1]})
            tags.append(answer.headers["etag"])
            ((start, _, _),) = read_plainly(answer.content).values()
            found.append((start, int(re.findall("SEQUENCE:(.*)", answer.text)[0])))

        fetch()
        moved = event("evt", date="2026-06-05T00:00:00Z", updatedAt="2026-03-02T06:30:00Z")
        home.listed("02 07:00", moved)
        home.merge()
        fetch()
        *_, batch_id = home.home.landing.batch_ids()
        (manifest,) = home.home.root.glob(f"landing/batches/*/{batch_id}.json")
        for _ in range(2):
            lost = manifest.rename(tmp_path / manifest.name)
            rebuild(home.home)
            fetch()
            lost.rename(manifest)
            rebuild(home.home)
            fetch()
    starts, sequences = zip(*found, strict=True)
    assert starts == ("20260601", "20260605", "20260601", "20260605", "20260601", "20260605")
    assert sequences == tuple(sorted(set(sequences)))
