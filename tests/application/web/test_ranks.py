"""The filter for ranks selects by the ranks known at the time, in each list and the feed."""

import re
from collections.abc import Iterator
from pathlib import Path

import icalendar
import pytest
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from almanac.calendar.feed import write_feed
from almanac.database import open_database
from application.web.calendar_routes import read_query
from tests.application.web.handmade_site import DAY, FIRST, NOW, PULLS, serve_pages
from tests.warehouse.answers.handmade import Known

RANKED = {
    FIRST: {"bitcoin": 1, "falling": 90, "rising": 200},
    PULLS[2]: {"bitcoin": 1, "falling": 200, "rising": 90},
}
COINS = {
    "top": ("bitcoin",),
    "fell": ("falling", "none"),
    "rose": ("rising",),
    "both": ("falling", "bitcoin"),
    "unranked": ("none",),
    "no-coin": (),
}
SELECTED = {
    "max_rank=100": {"top", "rose", "both"},
    "max_rank=500": {"top", "rose", "both", "fell"},
    "max_rank=100&coins=falling,rising": {"rose"},
    "max_rank=1&coins=none": set(),
    "max_rank=100&as_of=2026-03-02": {"top", "fell", "both"},
    "max_rank=1&as_of=2026-03-02": {"top", "both"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    dated = {"date": FIRST + 5 * DAY, "displayed_date": "06 Mar", "impact": 8.0}
    given = {"known_from": FIRST, "change_kinds": ("created",), "created_at": FIRST, **dated}
    versions = [
        Known(event_id=name, title=name, coins=coins, **given)  # type: ignore[arg-type]
        for name, coins in COINS.items()
    ]
    with serve_pages(folder, versions, ranked=RANKED) as client:
        yield client


@pytest.mark.parametrize("query", SELECTED)
def test_rank_of_the_time_selects_in_each_list(
    client: TestClient, folder: Path, query: str
) -> None:
    expected = SELECTED[query]
    for path in ("/?", "/changes?last=7d&"):
        rows = client.get(f"{path}{query}&format=json").json()["rows"]
        assert {row["event_id"] for row in rows} == expected, path
    page = client.get(f"/?{query}").text
    assert set(re.findall(r'scope="row"[^>]*><a href="/event/([^"?]+)', page)) == expected
    assert f'aria-label="Remove rank 1 to {query[9:].partition("&")[0]}"' in page
    strip = re.findall(r'data-day="2026-03-06" data-events="(\d+)"', page)
    assert strip == ([str(len(expected))] if expected else [])
    week = client.get(f"/?view=week&{query}").text
    assert set(re.findall(r'<li class="s4.*?href="/event/([^"?]+)', week)) == expected
    with open_database(folder / "warehouse.duckdb", clock=lambda: NOW, trust_clock=True) as db:
        feed = write_feed(db, read_query(QueryParams(query)))
    events = icalendar.Calendar.from_ical(feed.content).walk("VEVENT")
    assert {str(event["uid"]).partition("@")[0] for event in events} == expected


def test_wrong_rank_is_refused(client: TestClient) -> None:
    for given in ("0", "-1", "top", "1.5", "1e9"):
        answer = client.get(f"/?max_rank={given}")
        assert answer.status_code == 400
        assert "max_rank" in answer.text and "a number from 1 on" in answer.text
