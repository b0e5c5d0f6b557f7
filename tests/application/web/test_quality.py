import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from starlette.routing import Router
from starlette.testclient import TestClient

import almanac
from almanac.core.errors import WarehouseError
from almanac.database import open_database
from application.web.quality_page import HomeWatch
from application.web.site import WebSite, page_routes
from pipeline.health.facts import Health
from pipeline.health.warnings import read_health
from pipeline.settings import read_settings
from tests.almanac.publications import publish_by_hand
from tests.application.mirror.filled_home import ENDS, NOW, STARTS, mirroring
from tests.application.web.handmade_site import DAY, FIRST, PULLS, serve_pages
from tests.application.web.handmade_site import NOW as LATER
from tests.application.web.test_changes import make_move
from tests.warehouse.landed_days import FIRST as LANDED
from tests.warehouse.landed_days import land
from warehouse.history.merge import merge
from warehouse.home import Home


def test_page_shows_pulls_and_coverage(
    filled_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALMANAC_HOME", str(filled_home.root))

    def site(place: object) -> WebSite:
        return WebSite(place, read_health=lambda: read_health(read_settings(), filled_home, NOW))  # type: ignore[arg-type]

    with mirroring(filled_home, tmp_path, site=site) as (_, client):
        page = client.get("/quality").text
    assert str(filled_home.root) not in page
    assert re.search(
        r'<th scope="row">export</th><td data-label="State" class="good">fresh</td>', page
    )
    assert "No day since the first pull is without a complete pull" in page
    assert "Warnings are only for now" not in page
    with almanac.open(filled_home.root, clock=lambda: NOW) as database:
        windows = database.coverage().windows.rows()
        (counts,) = database.sql("SELECT count(*) AS n FROM event_versions").rows()
    assert "<dt>Source</dt><dd><bdi>embedded sandbox, seed 1, pace 1</bdi></dd>" in page
    for window in windows:
        assert f'<th scope="row">{window["feed"]}</th>' in page
    assert f"<dt>Versions of events</dt><dd>{counts['n']:,}</dd>" in page


def test_past_time_has_the_pulls_of_then_and_no_quota(
    filled_home: Home, client: httpx.Client
) -> None:
    at = STARTS + DAY
    page = client.get("/quality", params={"as_of": at.isoformat()}).text
    before = client.get("/quality", params={"as_of": "2020-01-01"})
    assert "The quota is only for now" in page
    assert "Warnings are only for now" in page
    assert f"{ENDS:%d %b %Y}" not in page[page.index("<main") : page.index("<footer")]
    with almanac.open(filled_home.root, clock=lambda: NOW) as database:
        rows = database.sql(
            "SELECT feed, count(*) AS n FROM batches WHERE observed_at <= $at GROUP BY feed", at=at
        ).rows()
    shown = re.findall(
        r'<th scope="row">(\w+)</th>.*?<td data-label="Batches" class="n">(\d+)<', page
    )
    assert {feed: int(n) for feed, n in shown} == {row["feed"]: row["n"] for row in rows}
    assert before.status_code == 200
    assert "Nothing was pulled by then" in before.text


def test_file_without_its_home_says_what_is_unknown_and_names_gaps(tmp_path: Path) -> None:
    with serve_pages(tmp_path, make_move("evt_1", 5), pulls=(PULLS[0], PULLS[3])) as client:
        page = client.get("/quality").text
    assert page.count("This server has only the published file, not its home.") == 2
    assert "2 of 4 days without a complete pull of events" in " ".join(page.split())
    assert f"{FIRST + DAY:%Y-%m-%d} to {FIRST + 2 * DAY:%Y-%m-%d}" in page


def test_a_pull_by_a_clock_ahead_is_shown_when_its_time_comes(tmp_path: Path) -> None:
    hour, clock = timedelta(hours=1), [FIRST]
    pulls = (FIRST, FIRST + 2 * hour)
    file = publish_by_hand(tmp_path / "warehouse.duckdb", make_move("evt", 0)[:1], pulls=pulls)
    with open_database(file, clock=lambda: clock[0], trust_clock=True) as database:
        client, found = TestClient(Router(page_routes(database))), []
        for clock[0] in (FIRST + hour, FIRST + 3 * hour):
            found += re.findall(r'label="Batches" class="n">(\d+)<', client.get("/quality").text)
    assert found == ["1", "2"]


def test_a_file_of_two_services_says_that_they_are_mixed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for day, source in enumerate(("https://api.example.com", "sandbox:7")):
        land(home, day, source=source)
    merge(home)
    with open_database(
        home.warehouse, clock=lambda: LANDED + 2 * DAY, trust_clock=True
    ) as database:
        page = TestClient(Router(page_routes(database))).get("/quality").text
    both = "https://api.example.com and embedded sandbox, seed 7, pace 1"
    assert f'<dd class="bad"><bdi>{both}</bdi>: their histories are mixed</dd>' in page


def test_health_is_read_at_most_once_a_minute_and_errors_name_no_folder() -> None:
    reads = []

    def read() -> Health:
        reads.append(1)
        raise WarehouseError("/home/user/secret/place can't be read")

    watch = HomeWatch(read)
    state = watch.state(LATER)
    watch.state(LATER)
    assert len(reads) == 1
    watch.state(LATER + DAY)
    assert len(reads) == 2
    assert state.health is None
    assert "secret" not in state.why_unknown
    assert "almanac status" in state.why_unknown
