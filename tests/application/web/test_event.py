"""The page of an event: its fields, its state, and its history as known at a time."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.almanac.publications import NamedCoin
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
from tests.warehouse.answers.handmade import Absence, Known


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


FIRST_VERSION = Known(
    event_id="evt",
    title="Unlock",
    coins=("dash",),
    categories=("Unlock",),
    known_from=FIRST,
    date=at(10, 14),
    displayed_date="10 Mar",
    unknown_fields=("impact",),
)
MOVED = replace(
    FIRST_VERSION,
    version=2,
    known_from=FIRST + DAY,
    date=at(15, 14),
    displayed_date="15 Mar",
    change_kinds=("rescheduled", "rescored"),
    changed_fields=("date", "displayed_date", "impact"),
    unknown_fields=(),
    impact=7.0,
    source_url="https://news.example/a",
)
VERSIONS = [
    FIRST_VERSION,
    MOVED,
    replace(
        MOVED,
        version=3,
        known_from=FIRST + 3 * DAY,
        change_kinds=("cancelled",),
        changed_fields=("status",),
        unknown_fields=("source_url", "impact_summary"),
        status="cancelled",
        cancelled_at=at(4, 3),
        source_url=None,
    ),
    Known(
        event_id="quarter",
        known_from=FIRST,
        title="Some quarter",
        date=datetime(2026, 6, 30, 23, 59, 59, tzinfo=UTC),
        displayed_date="Q2 2026",
        date_type="quarter",
        is_estimated=True,
        source_url="javascript:alert(1)",
    ),
    Known(event_id="before", known_from=FIRST, title="B", date=at(2), coins=("dash",)),
    Known(event_id="after", known_from=FIRST, title="A", date=at(20), coins=("dash",)),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve_pages(
        tmp_path_factory.mktemp("p"),
        VERSIONS,
        absences=[Absence("after", FIRST + 2 * DAY, FIRST + DAY)],
        coins=[NamedCoin("dash", "dash", "Dash coin", 50)],
    ) as client:
        yield client


def text(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(unescape(re.sub("<[^>]*>", " ", answer.text)).split())


def test_history_has_old_and_new_values_and_how_far_a_date_moved(client: TestClient) -> None:
    page = text(client, "/event/evt")
    assert "10 Mar 2026 14:00 UTC → 15 Mar 2026 14:00 UTC 5 days later" in page
    assert "Impact not shown by the plan → 7" in page
    assert "Status scheduled → cancelled" in page
    order = [page.index(f"version {number} ") for number in (3, 2, 1)]
    assert order == sorted(order)


def test_cancelled_and_missing_events_say_so(client: TestClient) -> None:
    assert "Cancelled. The service cancelled it" in text(client, "/event/evt")
    missing = text(client, "/event/after")
    assert "Missing. Complete pulls have not shown it since 02 Mar 2026 06:00" in missing
    assert "Missing." not in text(client, "/event/after?as_of=2026-03-02T12:00:00")


def test_hidden_field_is_not_shown_as_empty(client: TestClient) -> None:
    page = text(client, "/event/evt")
    assert "Source not shown by the plan" in page
    assert "Snapshot none" in page


def test_page_of_a_past_time_has_nothing_that_became_known_later(client: TestClient) -> None:
    page = text(client, "/event/evt?as_of=2026-03-02T12:00:00")
    assert "15 Mar 2026 14:00 UTC" in page
    assert "ancelled" not in page
    assert "version 3" not in page
    first = text(client, "/event/evt?as_of=2026-03-01T12:00:00")
    assert "15 Mar" not in first


def test_event_that_was_not_known_then_is_not_found(client: TestClient) -> None:
    then = client.get("/event/nothing?as_of=2026-03-02")
    assert then.status_code == 404
    assert "was not known then, at 2026-03-02 00:00:00 UTC" in unescape(then.text)
    assert client.get("/event/nothing").status_code == 404
    assert client.get("/event/").status_code == 404


def test_estimated_event_shows_its_period_and_no_day(client: TestClient) -> None:
    page = text(client, "/event/quarter")
    assert "Q2 2026 The date is not fixed: some time in this quarter." in page
    assert "30 Jun" not in page


def test_source_that_is_not_a_web_address_is_not_a_link(client: TestClient) -> None:
    page = client.get("/event/quarter").text
    assert 'href="javascript' not in page
    assert "not linked: not a web address" in page
    linked = client.get("/event/evt?as_of=2026-03-02T12:00:00").text
    assert 'href="https://news.example/a"' in linked


def test_links_lead_to_the_neighbours_the_coin_and_other_forms(client: TestClient) -> None:
    page = client.get("/event/evt?as_of=2026-03-02T12:00:00").text
    kept = "as_of=2026-03-02T12%3A00%3A00Z"
    for path in ("/event/before", "/event/after", "/coin/dash", "/v2/events/evt"):
        assert f'href="{path}?{kept}"' in page
    assert f'href="/calendar.ics?{kept}&amp;event=evt"' in page


def test_neighbours_and_changes_tell_coins_and_events_apart(tmp_path: Path) -> None:
    vote = {"coins": ("squid",), "known_from": FIRST, "title": "DAO Vote Ends"}
    first = Known(event_id="a", date=at(10), displayed_date="10 Mar", **vote)
    moved = {"version": 2, "known_from": FIRST + DAY, "change_kinds": ("rescheduled",)}
    versions = [
        first,
        replace(first, **moved, date=at(12), displayed_date="12 Mar"),
        Known(event_id="b", date=at(20), displayed_date="20 Mar", **vote),
    ]
    coins = [NamedCoin("squid", "ens", "Squid Wif Scarf", 9), NamedCoin("ens", "ens", "Ens", 1)]
    with serve_pages(tmp_path, versions, coins=coins) as client:
        event = client.get("/event/a").text.split("<h2>Events of the same coin</h2>")[1]
        assert "<bdi>Squid Wif Scarf</bdi></a></th>" in event
        changes = client.get("/coin/squid").text.split("<h2>Changes</h2>")[1]
        assert ">Rescheduled</td>" in changes
        assert 'DAO Vote Ends</bdi></a><br><span class="dim">12 Mar 2026</span>' in changes
        found = client.get("/coins", params={"q": "squid"}).text
        assert "1 coin that matches" in found
