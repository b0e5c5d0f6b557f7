"""The site around the pages: keys off loopback, headers, the replay clock, and MCP over HTTP."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from mcp import Client

import almanac
from application.web.site import WebSite
from catalog.contract.plans import PLANS
from catalog.server.service_dir import ServiceDir
from tests.application.mirror.filled_home import NOW, STARTS, mirroring
from tests.application.mirror.replays import order, replaying
from warehouse.home import Home

OPEN = ("/healthz", "/docs", "/v2/openapi.json")
PATHS = ("/", "/coins", "/coin/bitcoin", "/event/none", "/static/site.css")


def test_page_off_loopback_needs_a_key_of_a_full_plan(filled_home: Home, tmp_path: Path) -> None:
    book = ServiceDir(tmp_path).key_book()
    keys = {name: book.create(name, plan)[0] for name, plan in PLANS.items()}
    with mirroring(filled_home, tmp_path, site=WebSite, host="0.0.0.0") as (_, client):
        for path in PATHS:
            answer = client.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert client.get(path, auth=("anyone", "wrong")).status_code == 401
            for name, plan in PLANS.items():
                status = client.get(path, auth=("anyone", keys[name])).status_code
                assert (status == 403) != plan.export, name
            shown = client.get(path, headers={"x-api-key": keys["enterprise"]})
            assert shown.status_code in (200, 404)
            assert client.get(path, headers={"authorization": "Basic !!"}).status_code == 401
        for path in ("/mcp", "/mcp/"):
            for method in ("POST", "GET", "DELETE"):
                answer = client.request(method, path)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer ")
        open_to_all = {path: client.get(path).status_code for path in ("/metrics", *OPEN)}
        assert open_to_all == {"/metrics": 403, **dict.fromkeys(OPEN, 200)}
        key = {"x-api-key": keys["enterprise"]}
        assert client.get("/metrics", headers=key).status_code == 200
        for name in ("oauth-protected-resource", "oauth-protected-resource/mcp", "x"):
            assert client.get(f"/.well-known/{name}").status_code == 404
        assert client.get("/mcp/.well-known/openid-configuration").status_code == 404
        assert client.post("/register").status_code == 404
        assert post(client).status_code == 401
        assert post(client, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert post(client, auth=("anyone", keys["enterprise"])).status_code == 200
        for name, plan in PLANS.items():
            for headers in ({"authorization": f"Bearer {keys[name]}"}, {"x-api-key": keys[name]}):
                answer = post(client, headers=headers)
                assert answer.status_code == (200 if plan.export else 403)
                assert keys[name] not in answer.text


def test_every_answer_of_a_page_has_the_security_headers(client: httpx.Client) -> None:
    for path in (*PATHS, "/?page=0", "/static/none", "/event/" + "a" * 30_000):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    for path in ("/", "/static/site.css", "/calendar.ics"):
        assert client.get(path).headers["content-encoding"] == "gzip"
    assert client.get("/v2/events?limit=1").status_code == 200
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
        assert "Published" not in page
        for path in ("/?when=all", "/?when=all&estimated=only", "/coins", "/coin/bitcoin"):
            text = client.get(path).text
            assert not later & set(re.findall(r'href="/event/([^"?]+)', text))
            times = re.findall(r'<time datetime="([^"]+T[^"]+)"', text.split("<footer>")[1])
            assert all(time <= f"{clock:%Y-%m-%dT%H:%M:%SZ}" for time in times)
        shown = next(iter(sorted(later)))
        assert client.get(f"/event/{shown}").status_code == 404
        future = f"{clock + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        assert client.get("/", params={"as_of": future}).status_code == 422
        called = post(client, {"name": "upcoming", "arguments": {}}).json()["result"]
        assert called["structuredContent"]["as_of"] == f"{clock:%Y-%m-%dT%H:%M:%SZ}"
        assert "snapshot" not in called["structuredContent"]
        called = post(client, {"name": "upcoming", "arguments": {"as_of": future}}).json()["result"]
        assert called["isError"]
        counting = {"name": "query", "arguments": {"sql": "SELECT count(*) FROM events"}}
        text = post(client, counting).json()["result"]["content"][0]["text"]
        assert "replays an earlier time" in text
        order(client, advance_s=2 * 86_400)
        assert client.get("/", params={"as_of": future}).status_code == 200
        known = [row["event_id"] for row in rows if row["known_from"] <= clock + timedelta(days=2)]
        assert client.get(f"/event/{sorted(later & set(known))[0]}").status_code == 200


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_unknown_path_is_a_page_for_a_browser_and_json_for_a_program(client: httpx.Client) -> None:
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
        answer = client.get(path, headers=BROWSER)
        assert answer.headers["content-type"].startswith("application/json"), path
    assert client.get("/healthz", headers=BROWSER).status_code == 200
    assert client.get("/docs", headers=BROWSER).status_code == 200
    for path in ("/coins", "/changes", "/quality", "/calendar"):
        answer = client.get(f"{path}/?q=a%20b", headers=BROWSER)
        assert (answer.status_code, answer.headers["location"]) == (308, f"{path}?q=a%20b")
    assert client.get("/coins/").status_code == 403


ACCEPTED = {"accept": "application/json, text/event-stream"}
CALL = {"name": "coverage", "arguments": {}}


def post(client: httpx.Client, call: dict[str, Any] = CALL, **options: Any) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {**ACCEPTED, **options.pop("headers", {})}
    return client.post("/mcp", json=message, headers=headers, **options)


def test_call_is_answered_without_a_session(client: httpx.Client) -> None:
    for version in (None, "2025-03-26", "2025-06-18", "2025-11-25"):
        answer = post(client, headers={"mcp-protocol-version": version} if version else {})
        assert answer.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in answer.headers
        found = answer.json()["result"]
        assert found["structuredContent"]["rows"]
        assert not found["isError"]


def test_client_of_the_sdk_lists_and_calls_tools(client: httpx.Client) -> None:
    async def run(mode: str) -> None:
        async with Client(f"{client.base_url}/mcp".replace("//mcp", "/mcp"), mode=mode) as caller:
            assert len((await caller.list_tools()).tools) == 6
            assert (await caller.list_prompts()).prompts == []
            assert (await caller.list_resources()).resources == []
            assert (await caller.list_resource_templates()).resource_templates == []
            given = {"within": "30d", "limit": "1", "coins": None, "estimated": "include"}
            found = await caller.call_tool("upcoming", given)
            assert found.structured_content is not None
            assert found.structured_content["truncated"]

    for mode in ("legacy", "2026-07-28"):
        asyncio.run(run(mode))


def test_handshake_needs_no_version_header(client: httpx.Client) -> None:
    """The documents: up to 2025-11-25 the header begins after the handshake, an unknown version is
    a bad request, and from 2026-07-28 on `initialize` selects an earlier version."""
    who = {"name": "raw", "version": "1"}
    for header, status in (
        (None, 200),
        ("2025-03-26", 200),
        ("2025-11-25", 200),
        ("2026-07-28", 200),
        ("1999-01-01", 400),
    ):
        for path in ("/mcp", "/mcp/"):
            begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
            headers = ACCEPTED | ({"mcp-protocol-version": header} if header else {})
            answer = client.post(path, json=message, headers=headers)
            assert answer.status_code == status, header
            if status == 200:
                assert answer.json()["result"]["protocolVersion"] == "2025-06-18"
    assert post(client, headers={"mcp-protocol-version": "2026-07-28"}).status_code == 400


def test_home_without_a_publication_is_an_answer(filled_home: Home, tmp_path: Path) -> None:
    missing = tmp_path / "warehouse.duckdb"
    missing.symlink_to(filled_home.warehouse)
    with mirroring(Home(tmp_path), tmp_path / "m", site=WebSite) as (_, client):
        missing.unlink()
        answer = post(client).json()["result"]
    assert answer["isError"]
    assert "`almanac run`" in answer["content"][0]["text"]


def test_wrong_requests_are_refused_in_plain_words(client: httpx.Client) -> None:
    assert client.get("/mcp").status_code == 405
    assert client.get("/mcp").headers["allow"] == "POST"
    assert client.delete("/mcp").status_code == 405
    assert post(client, headers={"mcp-protocol-version": "1999-01-01"}).status_code == 400
    assert post(client, headers={"origin": "https://evil.example"}).status_code == 403
    assert post(client, headers={"host": "evil.example"}).status_code == 421
    assert client.post("/mcp", content=b"{", headers=ACCEPTED).status_code == 400
    assert client.post("/mcp", content=b"x" * 5_000_000, headers=ACCEPTED).status_code == 413
    for arguments in ('{"limit": 1}', [1]):
        wrong = post(client, {"name": "coverage", "arguments": arguments}).json()["error"]
        assert wrong["code"] == -32602
    message = post(client, {"name": "drop", "arguments": {}}).json()["result"]
    assert message["isError"]
    assert "the tools are upcoming" in message["content"][0]["text"]
