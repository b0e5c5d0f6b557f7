"""MCP over HTTP at `/mcp`: the tools of `almanac mcp` for assistants that connect to a server.

Each POST is answered with JSON, and no session is kept. The SDK is imported at the first request,
since it takes about a second.
"""

import asyncio
import json
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from almanac.mcp.toolbox import Toolbox
from application.web.mirror.mirror import SiteContext

MCP_PATH: Final = "/mcp"
_PROBED: Final = ("/.well-known/{rest:path}", f"{MCP_PATH}/{{rest:path}}", "/register")
"""Where clients look for an authorization server, which does not exist."""
_VERSION: Final = "mcp-protocol-version"


class McpRoute:
    """The routes of MCP."""

    def __init__(self, place: SiteContext) -> None:
        self._toolbox = Toolbox(
            place.warehouse, clock=place.now, trust_clock=True, is_replay=place.is_replay
        )
        self._server: Any = None

    def close(self) -> None:
        self._toolbox.close()

    def routes(self) -> list[BaseRoute]:
        return [Route(path, self) for path in (MCP_PATH, f"{MCP_PATH}/")]

    def missing_routes(self) -> list[BaseRoute]:
        """Return routes that answer 404 also without a key, else clients ask for a login."""
        return [Route(path, _NotFound()) for path in _PROBED]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        if self._server is None:
            module = await asyncio.to_thread(import_module, "almanac.mcp.server")
            self._server = module.make_server(self._toolbox.call)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # Without sessions there is nothing to share between requests.
        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(*await _read_handshake(scope, receive), send)


class _NotFound:
    """Answers 404 to every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(404)


async def _read_handshake(scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    """Return a request; `initialize` loses the header of a version without a handshake.

    Up to 2025-11-25 the header begins after the handshake. From 2026-07-28 on `initialize` selects
    an earlier version, whatever the header (Versioning), but the SDK judges by the header alone.
    """
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    headers = MutableHeaders(scope=scope)
    if headers.get(_VERSION) not in MODERN_PROTOCOL_VERSIONS:
        return scope, receive
    body = await Request(scope, receive).body()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    with suppress(ValueError, RecursionError, AttributeError):
        if json.loads(body).get("method") == "initialize":
            del headers[_VERSION]
    return scope, receive_again
