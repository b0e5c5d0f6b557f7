"""The site around the pages: keys off loopback, headers, publications and the replay clock."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

import almanac
from application.web.site import WebSite
from catalog.contract.plans import PLANS
from catalog.server.state_dir import ServiceDir
from tests.application.mirror.filled_home import NOW, STARTS, mirroring
from tests.application.mirror.replays import order, replaying
from warehouse.home import Home

PATHS = ("/", "/coins", "/coin/bitcoin", "/event/none", "/static/site.css")


@pytest.fixture(scope="module")
def guarded(
    filled_home: Home, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """Yield a client of a mirror that other machines reach, and a key of each plan."""
    folder = tmp_path_factory.mktemp("guarded")
    book = ServiceDir(folder).key_book()
    keys = {name: book.create(name, plan)[0] for name, plan in PLANS.items()}
    with mirroring(filled_home, folder, site=WebSite, host="0.0.0.0") as (_, client):
        yield client, keys


@pytest.mark.parametrize("path", PATHS)
def test_page_off_loopback_needs_a_key_of_a_plan_that_shows_every_field(
    guarded: tuple[httpx.Client, dict[str, str]], path: str
) -> None:
    client, keys = guarded
    answer = client.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert client.get(path, auth=("anyone", "wrong")).status_code == 401
    for name, plan in PLANS.items():
        status = client.get(path, auth=("anyone", keys[name])).status_code
        assert (status == 403) != plan.export, name
    assert client.get(path, headers={"x-api-key": keys["enterprise"]}).status_code in (200, 404)
    assert client.get(path, headers={"authorization": "Basic !!"}).status_code == 401


def test_every_answer_of_a_page_has_the_security_headers(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path, site=WebSite) as (_, client):
        for path in (*PATHS, "/?page=0", "/static/none", "/event/" + "a" * 30_000):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
        assert client.get("/v2/events?limit=1").status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.head("/").status_code == 200


def test_replay_shows_nothing_later_than_its_clock(filled_home: Home, tmp_path: Path) -> None:
    clock = STARTS + timedelta(days=1, hours=2)
    with almanac.open(filled_home.root, clock=lambda: NOW) as database:
        rows = database.sql(
            "SELECT event_id, min(known_from) AS known_from FROM event_versions GROUP BY event_id"
        ).rows()
    later = {row["event_id"] for row in rows if row["known_from"] > clock}
    assert later
    with replaying(filled_home, tmp_path, clock, site=WebSite) as (_, client):
        page = client.get("/?when=all").text
        assert f"{clock:%d %b %Y}" in page
        for path in ("/?when=all", "/?when=all&dates=estimated", "/coins", "/coin/bitcoin"):
            text = client.get(path).text
            assert not later & set(re.findall(r'href="/event/([^"?]+)', text))
            times = re.findall(r'<time datetime="([^"]+T[^"]+)"', text.split("<footer>")[1])
            assert all(time <= f"{clock:%Y-%m-%dT%H:%M:%SZ}" for time in times)
        shown = next(iter(sorted(later)))
        assert client.get(f"/event/{shown}").status_code == 404
        future = f"{clock + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        assert client.get("/", params={"as_of": future}).status_code == 400
        order(client, advance_s=2 * 86_400)
        assert client.get("/", params={"as_of": future}).status_code == 200
        known = [row["event_id"] for row in rows if row["known_from"] <= clock + timedelta(days=2)]
        assert client.get(f"/event/{sorted(later & set(known))[0]}").status_code == 200


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_browser_gets_a_page_for_an_unknown_path_and_a_program_gets_json(
    filled_home: Home, tmp_path: Path
) -> None:
    with mirroring(filled_home, tmp_path, site=WebSite) as (_, client):
        for path in ("/api", "/nothing/here", "/%3Cb%3E"):
            answer = client.get(path, headers=BROWSER)
            assert answer.status_code == 404
            assert answer.headers["content-type"].startswith("text/html")
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "Page not found" in answer.text
            assert 'href="/coins"' in answer.text
            assert "<b>" not in answer.text
            assert client.get(path).json()["error"]["code"] == "not_found"
        for path in ("/v1/events", "/v2/nothing", "/events"):
            for headers in (BROWSER, {}):
                answer = client.get(path, headers=headers)
                assert answer.headers["content-type"].startswith("application/json"), path
        assert client.get("/healthz", headers=BROWSER).status_code == 200
        assert client.get("/docs", headers=BROWSER).status_code == 200


def test_slash_at_the_end_leads_a_browser_to_the_page(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path, site=WebSite) as (_, client):
        for path in ("/coins", "/changes", "/quality", "/calendar"):
            answer = client.get(f"{path}/?q=a%20b", headers=BROWSER)
            assert answer.status_code == 308
            assert answer.headers["location"] == f"{path}?q=a%20b"
        assert client.get("/coins/").status_code == 403
