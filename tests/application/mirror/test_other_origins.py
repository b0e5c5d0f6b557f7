"""Every door of a mirror: for pages of other origins, behind a proxy, and as of a wrong time."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from application.web.mirror.mirror import CONTROL_PATH
from application.web.site import WebSite
from catalog.contract.plans import ENTERPRISE
from catalog.server.app import ServerOptions
from catalog.server.service_dir import ServiceDir
from tests.application.mirror.filled_home import STARTS, mirroring
from tests.application.mirror.replays import replaying
from warehouse.home import Home

KNOWN = "https://app.example"
DOORS = {
    **dict.fromkeys(("/v2/events", "/v1/events", "/v2/openapi.json", "/v2/events/none"), "GET"),
    **dict.fromkeys(("/v2/events/changes", "/v2/events/none/history", "/healthz", "/docs"), "GET"),
    **dict.fromkeys(("/calendar.ics", "/calendar", "/", "/changes", "/event/none"), "GET"),
    **dict.fromkeys(("/static/site.css", "/nothing"), "GET"),
    "/mcp": "POST",
    CONTROL_PATH: "PUT",
}
SENT = (
    *("x-api-key", "authorization", "content-type", "x-as-of", "if-none-match", "last-event-id"),
    *("mcp-session-id", "mcp-protocol-version"),
)
READ = {
    *("etag", "retry-after", "x-as-of", "x-truncated", "x-ratelimit-remaining", "mcp-session-id"),
    *("x-ratelimit-limit", "x-ratelimit-reset", "last-modified", "mcp-protocol-version"),
}
ACCEPTED = {"accept": "application/json, text/event-stream"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def preflight(client: httpx.Client, path: str, method: str, **headers: str) -> httpx.Response:
    asked = {"method": method, "headers": ", ".join(SENT), "private-network": "true"}
    named = {f"access-control-request-{name}": value for name, value in asked.items()}
    return client.options(path, headers={"origin": KNOWN, **named, **headers})


def check_doors(client: httpx.Client, **options: Any) -> None:
    """Check that a page of the known origin, and no other, may ask every door and read why not."""
    for path, method in DOORS.items():
        allowed = preflight(client, path, method).headers
        assert allowed["access-control-allow-origin"] == KNOWN, path
        assert method in allowed["access-control-allow-methods"]
        assert set(SENT) <= set(allowed["access-control-allow-headers"].lower().split(", "))
        assert allowed["access-control-allow-private-network"] == "true"
        evil = preflight(client, path, method, origin="https://evil.example")
        assert evil.status_code in (400, 403)
        for asked in (options, {}):
            head = {**ACCEPTED, "origin": KNOWN, **asked}
            answer = client.request(method, path, headers=head, json=CALL)
            assert answer.headers["access-control-allow-origin"] == KNOWN, path
            read = answer.headers["access-control-expose-headers"].lower().split(", ")
            assert set(read) >= READ


def test_cors_covers_every_door_before_the_key_is_checked(
    filled_home: Home, tmp_path: Path
) -> None:
    key, _ = ServiceDir(tmp_path).key_book().create("page", ENTERPRISE)
    cors: dict[str, Any] = {"options": ServerOptions(cors_origins=(KNOWN,)), "site": WebSite}
    with mirroring(filled_home, tmp_path, host="0.0.0.0", **cors) as (_, client):
        check_doors(client, **{"x-api-key": key})
        head = {**ACCEPTED, "origin": KNOWN, "authorization": f"Bearer {key}"}
        assert client.post("/mcp", headers=head, json=CALL).json()["result"]["tools"]
    with replaying(filled_home, tmp_path, STARTS, **cors) as (_, client):
        check_doors(client)
        state = client.put(CONTROL_PATH, headers={"origin": KNOWN}, json={"step": 1}).json()
        assert state["changes"]["known"] > 0
        # The guard of loopback stands before the answer to a preflight.
        assert preflight(client, "/v2/events", "GET", host="evil.example").status_code == 421


def test_an_address_has_the_prefix_of_a_proxy_that_strips_it_or_not(
    filled_home: Home, tmp_path: Path
) -> None:
    base = "/desk/almanac"
    options = ServerOptions(base_path=base)
    with mirroring(filled_home, tmp_path, site=WebSite, options=options) as (_, client):
        paths = ("/v2/events?limit=2", "/coins", "/calendar.ics", "/v2/openapi.json", "/healthz")
        for path in (*paths, "/docs", "/static/site.css", "/v2/events?limit=0", "/v2/nothing"):
            stripped, passed = client.get(path), client.get(base + path)
            assert stripped.status_code == passed.status_code
            if path not in ("/healthz", "/v2/events?limit=0", "/v2/nothing"):
                assert stripped.content == passed.content, path
        assert client.get(base).content == client.get(f"{base}/").content
        assert client.get(f"{base}2/docs").status_code == 404
        page = client.get(f"{base}/?coins=slug:bitcoin", headers={"accept": "text/html"}).text
        links = {unescape(link) for link in re.findall(r'<a href="(/[^"]*)"', page)}
        heads = {urlsplit(link).path: link for link in links}
        assert {f"{base}/{name}" for name in ("", "coins", "changes", "quality")} <= set(heads)
        for link in heads.values():
            assert link.startswith(f"{base}/")
            assert client.get(link).status_code == 200, link
        for prefix in ("", base):
            assert client.get(f"{prefix}/v2/openapi.json").json()["servers"] == [{"url": base}]
            assert f'href="{base}/v2/openapi.json"' in client.get(f"{prefix}/docs").text
            assert f"{base}/calendar.ics" in client.get(f"{prefix}/calendar").text
            moved = client.get(f"{prefix}/coins/?q=a", headers={"accept": "text/html"})
            assert (moved.status_code, moved.headers["location"]) == (308, f"{base}/coins?q=a")
            listed = client.post(f"{prefix}/mcp", headers=ACCEPTED, json=CALL)
            assert listed.json()["result"]["tools"]
    with mirroring(filled_home, tmp_path, options=options) as (_, client):
        assert client.get(f"{base}/").headers["location"] == f"{base}/docs"
    for wrong in ("almanac", "/almanac/", "/", "/a/../b", "/a b", "//evil.example", "/a?b", "/ä"):
        with pytest.raises(ValueError, match="expected one such as /almanac"):
            ServerOptions(base_path=wrong)


def test_a_time_that_is_not_known_has_the_same_status_at_every_door(
    filled_home: Home, tmp_path: Path
) -> None:
    with mirroring(filled_home, tmp_path, site=WebSite) as (_, client):
        doors = ("/v2/events", "/v2/coins", "/", "/coins", "/changes", "/quality", "/calendar.ics")
        for as_of, status in (("2020-01-01", 422), ("2999-01-01", 422), ("soon", 400)):
            found = {door: client.get(door, params={"as_of": as_of}).status_code for door in doors}
            if status == 422 and as_of < "2021":
                # The page of quality is also there before the first pull.
                assert found.pop("/quality") == 200
            assert set(found.values()) == {status}, found
