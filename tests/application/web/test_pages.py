import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from starlette.routing import Route, Router
from starlette.testclient import TestClient

from almanac.core.errors import InvalidArgument
from almanac.database import open_database
from application.web.pages import Pages, SiteRequest, table_file
from application.web.site import page_routes
from tests.almanac.publications import publish_by_hand
from tests.application.web.handmade_site import DAY, FIRST, NOW, PULLS, serve_pages
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
    free = {link for link in links if "as_of=" not in link and not link.startswith("/static/")}
    # The link back to now is the only page without a time.
    assert free - {"/docs"} == {path}
    for form in re.findall(r"<form (?!method).*?</form>", page, re.S):
        assert 'name="as_of"' in form


WRONG_TIMES = {
    "2026-02-01": (422, "before the first pull of events"),
    "2026-09-01": (422, "is still to come"),
    "soon": (400, "is not a timestamp"),
    "2026-03-02 12:00 CST": (400, "means several zones"),
}


def test_wrong_time_names_the_nearest_valid_ones(client: TestClient) -> None:
    for path in PAGES:
        for given, (status, text) in WRONG_TIMES.items():
            answer = client.get(path, params={"as_of": given})
            assert (answer.status_code, text in unescape(answer.text)) == (status, True), path
            assert f'href="{path}?as_of=2026-03-01T06%3A00%3A00Z"' in answer.text


def test_tag_changes_with_the_minute_the_publication_and_the_parameters(tmp_path: Path) -> None:
    file, clock, shown = tmp_path / "warehouse.duckdb", [NOW], []

    def show(request: SiteRequest) -> str:
        shown.append(request.path)
        return "page"

    def tag(parameters: str = "", **headers: str) -> str:
        answer = client.get("/" + parameters, headers=headers)
        assert answer.status_code == (304 if headers else 200)
        return answer.headers["etag"]

    publish_by_hand(file, VERSIONS, pulls=PULLS)
    with open_database(file, clock=lambda: clock[0], trust_clock=True) as database:
        routes = [Route("/", Pages(database).endpoint(show, parameters=("q",)))]
        client = TestClient(Router(routes))
        first, then = tag(), tag(f"?as_of={THEN}")
        clock[0] += timedelta(seconds=59)
        count = len(shown)
        assert tag(**{"if-none-match": f'"other", {first}'}) == first
        assert len(shown) == count
        clock[0] += timedelta(seconds=1)
        tags = [first, tag(), tag("?q=a"), tag("?q=b"), then, tag("?as_of=2026-03-02T12:00:01")]
        assert len(set(tags)) == len(tags)
        assert tag(f"?as_of={THEN}") == then
        for name in ("authorization", "x-api-key", "host"):
            answer = client.get("/", headers={name: "other", "if-none-match": tags[1]})
            assert (answer.status_code, answer.text) == (200, "page")
            assert answer.headers["etag"] not in tags
        publish_by_hand(file, VERSIONS, pulls=[*PULLS, NOW])
        assert tag() not in tags


def test_every_address_has_the_prefix_of_the_proxy(tmp_path: Path) -> None:
    file = publish_by_hand(tmp_path / "warehouse.duckdb", VERSIONS, pulls=PULLS)
    with open_database(file, clock=lambda: NOW, trust_clock=True) as database:
        client = TestClient(Router(page_routes(database, base_path="/data/events")))
        paths = (*PAGES, "/changes", "/quality", "/search?q=list", "/?page=9", "/coin/none")
        for path in (*paths, *(f"/?as_of={given}" for given in (THEN, "2026-02-01"))):
            page = client.get(path).text
            found = re.findall(r' (?:href|action|src)="([^"#][^"]*)"', page)
            assert len(found) > 10
            wrong = [link for link in found if not link.startswith("/data/events/")]
            assert wrong == [], path
        found = client.get("/search?q=dash", follow_redirects=False).headers["location"]
        assert found == "/data/events/coin/dash"
    (address,) = re.findall(r'src="/data/events(/static/site.js[^"]+)"', page)
    for path in (address, "/static/site.js?v=older", "/static/site.js"):
        kept = client.get(path).headers.get("cache-control", "")
        assert ("immutable" in kept) == (path == address)


def test_header_tells_the_age_of_the_last_pull(tmp_path: Path) -> None:
    hours = timedelta(hours=36)
    ages = {timedelta(minutes=6): "6 min", hours: "36 h", hours + timedelta(seconds=1): "36 h"}
    for age, shown in ages.items():
        with serve_pages(tmp_path, VERSIONS, now=PULLS[-1] + age) as client:
            pill = re.findall(r'<a class="pill.*?</a>', client.get("/coins").text, re.S)[0]
        text = re.sub("<[^>]+>", "", pill)
        assert text == f"Pulled {shown} ago" + (", stale" if age > hours else "")
        assert 'href="/quality"' in pill


def test_list_is_a_file_that_no_spreadsheet_runs(tmp_path: Path) -> None:
    rows = [{"title": '=1+1, "x"', "at": FIRST, "coins": ["a", "b"], "impact": -1.5, "none": None}]
    file = publish_by_hand(tmp_path / "warehouse.duckdb", VERSIONS, pulls=PULLS)
    with open_database(file, clock=lambda: NOW, trust_clock=True) as database:
        page = Pages(database).read_request("/", {})
        found = table_file(page, "csv", "list", rows)
        assert found.headers["content-disposition"] == 'attachment; filename="list.csv"'
        assert bytes(found.body).decode().split("\n") == [
            "title,at,coins,impact,none",
            '"\'=1+1, ""x""",2026-03-01T06:00:00Z,"a, b",-1.5,',
            "",
        ]
        page = Pages(database).move(page, FIRST + DAY + timedelta(hours=1))
        assert json.loads(bytes(table_file(page, "json", "list", rows).body)) == {
            "as_of": "2026-03-02T07:00:00Z",
            "last_pull_at": "2026-03-02T06:00:00Z",
            "rows": [{**rows[0], "at": "2026-03-01T06:00:00Z"}],
        }
        with pytest.raises(InvalidArgument, match="expected csv or json"):
            table_file(page, "xml", "list", rows)


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
        for name in ("asof", "AS_OF", "as-of"):
            answer = client.get(path, params={name: THEN})
            assert answer.status_code == 400
            assert f"this page has no parameter '{name}'; it has as_of" in unescape(answer.text)
