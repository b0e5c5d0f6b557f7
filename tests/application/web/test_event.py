import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

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
    *(
        replace(
            FIRST_VERSION,
            event_id="often",
            version=number + 1,
            known_from=FIRST + number * DAY,
            coins=("zcash",),
            date=at(1) + days * DAY,
            displayed_date=f"Date {number}",
            change_kinds=("rescheduled",) if number else ("created",),
            changed_fields=("date", "displayed_date") if number else (),
        )
        for number, days in enumerate((10, 70, 61, 191))
    ),
    Known(
        event_id="undated",
        known_from=FIRST,
        title="U",
        date=at(2),
        coins=("zcash",),
        displayed_date=None,
    ),
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
    assert "Source not shown by the plan" in page
    assert "Snapshot none" in page
    order = [page.index(f"version {number} ") for number in (3, 2, 1)]
    assert order == sorted(order)


def test_track_record_has_the_moves_that_were_known(client: TestClient) -> None:
    assert "Track record Moved 3 times, 181 days later in all" in text(client, "/event/often")
    then = text(client, "/event/often?as_of=2026-03-03T12:00:00")
    assert "Track record Moved 2 times, 51 days later in all" in then
    assert "Track record Moved once, 5 days later Impact" in text(client, "/event/evt")
    assert "Track record" not in text(client, "/event/evt?as_of=2026-03-01T12:00:00")


def test_neighbour_without_a_displayed_date_has_its_date(client: TestClient) -> None:
    assert "zcash U 02 Mar 2026" in text(client, "/event/often")


def test_cancelled_and_missing_events_say_so(client: TestClient) -> None:
    assert "Cancelled. The service cancelled it" in text(client, "/event/evt")
    missing = text(client, "/event/after")
    assert "Missing. Complete pulls have not shown it since 02 Mar 2026 06:00" in missing
    assert "Missing." not in text(client, "/event/after?as_of=2026-03-02T12:00:00")


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


def test_estimated_event_shows_its_period_and_no_link_to_a_script(client: TestClient) -> None:
    page = text(client, "/event/quarter")
    assert "Q2 2026 The date is not fixed: some time in this quarter." in page
    assert "30 Jun" not in page
    assert "not linked: not a web address" in page
    assert 'href="javascript' not in client.get("/event/quarter").text


def test_links_lead_to_the_neighbours_the_coin_and_other_forms(client: TestClient) -> None:
    page = client.get("/event/evt?as_of=2026-03-02T12:00:00").text
    kept = "as_of=2026-03-02T12%3A00%3A00Z"
    for path in ("/event/before", "/event/after", "/coin/dash", "/v2/events/evt"):
        assert f'href="{path}?{kept}"' in page
    assert f'href="/calendar.ics?{kept}&amp;event=evt"' in page
    assert 'href="https://news.example/a"' in page
    for rel, event_id in (("prev", "before"), ("next", "after")):
        assert f'<a rel="{rel}" href="/event/{event_id}?{kept}"' in page
