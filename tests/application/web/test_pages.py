import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from starlette.routing import Route, Router
from starlette.testclient import TestClient

from almanac.database import open_database
from application.web.pages import Pages, SiteRequest
from tests.almanac.publications import publish_by_hand
from tests.application.web.handmade_site import DAY, FIRST, NOW, serve_pages
from tests.warehouse.answers.handmade import Known

VERSIONS = [
    Known(
        event_id="evt",
        known_from=FIRST,
        title="Listing",
        coins=("dash",),
        date=NOW + 5 * DAY,
        displayed_date="09 Mar",
    )
]
PAGES = ("/", "/event/evt", "/coins", "/coin/dash")
THEN = "2026-03-02T12:00:00"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve_pages(tmp_path_factory.mktemp("p"), VERSIONS) as client:
        yield client


@pytest.mark.parametrize("path", PAGES)
def test_page_says_its_time_and_its_links_keep_it(client: TestClient, path: str) -> None:
    page = client.get(path, params={"as_of": THEN}).text
    assert re.search(r"As known at <time datetime=\"2026-03-02T12:00:00Z\">", page)
    assert "Back to now" in page
    assert "Back to now" not in client.get(path).text
    links = [unescape(link) for link in re.findall(r'href="(/[^"]*)"', page)]
    free = [link for link in links if "as_of=" not in link]
    fixed = {"/docs", "/static/site.css", "/static/icon.svg"}
    # The link back to now is the only page without a time.
    assert set(free) - fixed == {path}
    for form in re.findall(r"<form.*?</form>", page, re.S):
        assert 'name="as_of"' in form


WRONG_TIMES = {
    "2026-02-01": (422, "before the first pull of events"),
    "2026-09-01": (400, "is still to come"),
    "soon": (400, "is not a timestamp"),
    "2026-03-02 12:00 CST": (400, "means several zones"),
}


def test_wrong_time_names_the_nearest_valid_ones(client: TestClient) -> None:
    for path in PAGES:
        for given, (status, text) in WRONG_TIMES.items():
            answer = client.get(path, params={"as_of": given})
            assert (answer.status_code, text in unescape(answer.text)) == (status, True), path
            assert f'href="{path}?as_of=2026-03-01T06%3A00%3A00Z"' in answer.text


def test_unchanged_page_has_an_etag(client: TestClient) -> None:
    tag = client.get("/", params={"as_of": THEN}).headers["etag"]
    again = client.get("/", params={"as_of": THEN}, headers={"if-none-match": tag})
    assert (again.status_code, again.text) == (304, "")


def test_warehouse_without_pulls_or_events_says_so(tmp_path: Path) -> None:
    with serve_pages(tmp_path, VERSIONS, pulls=[], at=FIRST - DAY) as client:
        for path in PAGES:
            answer = client.get(path)
            assert answer.status_code == 422
            assert "`almanac run`" in answer.text
            assert "<nav" in answer.text
    with serve_pages(tmp_path, []) as client:
        assert "No event matches" in client.get("/").text
        assert "No coin matches" in client.get("/coins").text


def test_page_before_the_clock_shows_nothing_later(tmp_path: Path) -> None:
    later = Known(event_id="later", known_from=NOW, title="Later", date=NOW + 3 * DAY)
    clock = FIRST + timedelta(hours=1)
    with serve_pages(tmp_path, [*VERSIONS, later], now=clock) as client:
        page = client.get("/?when=all").text
        assert "Listing" in page
        assert "Later" not in page
        assert "Published" not in page
        assert client.get("/event/later").status_code == 404
        assert client.get("/", params={"as_of": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}).status_code == 400


def test_defect_of_a_page_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: SiteRequest) -> str:
        raise ZeroDivisionError("an inner reason")

    file = publish_by_hand(tmp_path / "warehouse.duckdb", VERSIONS, pulls=[FIRST])
    with open_database(file, clock=lambda: NOW) as database:
        route = Route("/", Pages(database).endpoint(fail))
        answer = TestClient(Router([route])).get("/")
    assert answer.status_code == 500
    assert "The log of" in answer.text
    assert "an inner reason" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_misspelt_parameter_never_shows_the_present(client: TestClient) -> None:
    for path in PAGES:
        for name in ("asof", "AS_OF", "coins"):
            answer = client.get(path, params={name: THEN})
            assert answer.status_code == 400
            assert f"this page has no parameter '{name}'; it has as_of" in unescape(answer.text)
