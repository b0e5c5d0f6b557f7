"""MCP over HTTP: versions, keys, other sites, sizes, and the clock of a replay."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from application.web.site import WebSite
from catalog.contract.plans import PLANS
from catalog.server.state_dir import ServiceDir
from tests.application.mirror.filled_home import STARTS, mirroring
from tests.application.mirror.replays import replaying
from warehouse.home import Home

ACCEPTED = {"accept": "application/json, text/event-stream"}
CALL = {"name": "coverage", "arguments": {}}


def post(client: httpx.Client, call: dict[str, Any] = CALL, **options: Any) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {**ACCEPTED, **options.pop("headers", {})}
    return client.post("/mcp", json=message, headers=headers, **options)


@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-06-18", "2025-11-25"])
def test_call_is_answered_without_a_session(client: httpx.Client, version: str | None) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    answer = post(client, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    found = answer.json()["result"]
    assert found["structuredContent"]["rows"]
    assert not found["isError"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_client_of_the_sdk_lists_and_calls_tools(client: httpx.Client, mode: str) -> None:
    async def run() -> None:
        async with Client(f"{client.base_url}/mcp".replace("//mcp", "/mcp"), mode=mode) as caller:
            assert len((await caller.list_tools()).tools) == 8
            found = await caller.call_tool("upcoming", {"within": "30d", "limit": 1})
            assert found.structured_content is not None
            assert found.structured_content["truncated"]

    asyncio.run(run())


def test_wrong_requests_are_refused_in_plain_words(client: httpx.Client) -> None:
    assert client.get("/mcp").status_code == 405
    assert client.get("/mcp").headers["allow"] == "POST"
    assert client.delete("/mcp").status_code == 405
    assert post(client, headers={"mcp-protocol-version": "1999-01-01"}).status_code == 400
    assert post(client, headers={"origin": "https://evil.example"}).status_code == 403
    assert post(client, headers={"host": "evil.example"}).status_code == 421
    assert client.post("/mcp", content=b"{", headers=ACCEPTED).status_code == 400
    assert client.post("/mcp", content=b"x" * 5_000_000, headers=ACCEPTED).status_code == 413
    message = post(client, {"name": "drop", "arguments": {}}).json()["result"]
    assert message["isError"]
    assert "the tools are upcoming" in message["content"][0]["text"]


def test_other_requests_are_answered_while_a_statement_runs(client: httpx.Client) -> None:
    slow = {"sql": "SELECT count(*) FROM range(300000) a, range(1000) b"}
    answers: list[int] = []

    def run() -> None:
        answers.append(post(client, {"name": "query", "arguments": slow}).status_code)

    thread = threading.Thread(target=run)
    thread.start()
    assert post(client).status_code == 200
    assert client.get("/healthz").status_code == 200
    thread.join()
    assert answers == [200]


def test_off_loopback_a_key_of_a_plan_that_shows_every_field_is_needed(
    filled_home: Home, tmp_path: Path
) -> None:
    book = ServiceDir(tmp_path).key_book()
    keys = {name: book.create(name, plan)[0] for name, plan in PLANS.items()}
    with mirroring(filled_home, tmp_path, site=WebSite, host="0.0.0.0") as (_, client):
        assert post(client).status_code == 401
        assert post(client, headers={"authorization": "Bearer wrong"}).status_code == 401
        for name, plan in PLANS.items():
            for headers in ({"authorization": f"Bearer {keys[name]}"}, {"x-api-key": keys[name]}):
                answer = post(client, headers=headers)
                assert answer.status_code == (200 if plan.export else 403)
                assert keys[name] not in answer.text
        assert post(client, auth=("anyone", keys["enterprise"])).status_code == 200


def test_replay_shows_nothing_later_than_its_clock(filled_home: Home, tmp_path: Path) -> None:
    clock = STARTS + timedelta(days=1, hours=2)
    with replaying(filled_home, tmp_path, clock, site=WebSite) as (_, client):
        found = post(client, {"name": "upcoming", "arguments": {}}).json()["result"]
        assert found["structuredContent"]["as_of"] == f"{clock:%Y-%m-%dT%H:%M:%SZ}"
        later = {"as_of": f"{clock + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
        assert post(client, {"name": "upcoming", "arguments": later}).json()["result"]["isError"]
        counting = {"name": "query", "arguments": {"sql": "SELECT count(*) FROM events"}}
        found = post(client, counting).json()["result"]
        assert "replays an earlier time" in found["content"][0]["text"]
