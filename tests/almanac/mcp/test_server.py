"""The server of the tools: what waits for what."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from mcp import Client

from almanac.core.errors import AlmanacError
from almanac.mcp.server import make_server
from tests.hangs import HANGS_AFTER_S


def test_other_tools_do_not_wait_for_queries() -> None:
    started, end = threading.Semaphore(0), threading.Event()

    def call(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        if name == "query":
            started.release()
            assert end.wait(HANGS_AFTER_S)
        return {"as_of": "2026-03-01", "note": "No rows.", "name": name}

    async def run() -> list[str]:
        async with Client(make_server(call)) as client:
            queries = [asyncio.ensure_future(client.call_tool("query", {})) for _ in range(12)]
            for _ in queries:  # All have arrived, so each begins to wait for its turn.
                assert await asyncio.to_thread(started.acquire, timeout=HANGS_AFTER_S)
            first = await client.call_tool("coverage", {})
            end.set()
            return [
                answer.structured_content["name"] for answer in (first, *[await q for q in queries])
            ]

    assert asyncio.run(asyncio.wait_for(run(), HANGS_AFTER_S)) == ["coverage", *["query"] * 12]


def test_an_error_has_no_character_that_acts_on_a_terminal() -> None:
    def call(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        raise AlmanacError("no coin \x1b[31mred")

    async def run() -> str:
        async with Client(make_server(call)) as client:
            return str((await client.call_tool("coverage", {})).content[0].text)

    assert asyncio.run(run()) == r"no coin \x1b[31mred"
