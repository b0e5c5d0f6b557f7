"""MCP over HTTP at `/mcp`: the tools of `almanac mcp` for assistants that connect to a server.

Each POST is answered with JSON, and no session is kept. The SDK is imported at the first request,
since it takes about a second.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from almanac.errors import AlmanacError
from application.web.mirror.mirror import SiteContext
from catalog.server.app import Background

log = logging.getLogger(__name__)
MCP_PATH: Final = "/mcp"
_NO_STREAM: Final = (
    "This address answers POST requests of the Model Context Protocol. It has no stream and no "
    "session. docs/serve.md has the configuration of a client.\n"
)
_NO_SDK: Final = (
    "The MCP SDK is not installed on this server: pip install 'crypto-almanac[mcp]', and start it "
    "again.\n"
)
_NO_WAREHOUSE: Final = (
    "The warehouse can't be read now. The log of the server has the reason; try it again later.\n"
)
_FAILED: Final = "MCP failed to start. The log of the server has the reason.\n"


class McpRoute:
    """The route of MCP. Its background task holds the SDK's session manager."""

    def __init__(self, place: SiteContext) -> None:
        self._place = place
        self._wanted = asyncio.Event()
        self._begun = asyncio.Event()
        self._manager: Any = None
        self._refusal = (503, _NO_WAREHOUSE)
        self.background: Sequence[Background] = (self._run,)

    def routes(self) -> list[BaseRoute]:
        return [Route(MCP_PATH, self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            headers = {"allow": "POST"}
            refusal: Response = PlainTextResponse(_NO_STREAM, status_code=405, headers=headers)
            await refusal(scope, receive, send)
            return
        if self._manager is None:
            self._begun.clear()
            self._wanted.set()
            await self._begun.wait()
        if self._manager is None:
            status, why = self._refusal
            await PlainTextResponse(why, status_code=status)(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                toolbox, manager = await asyncio.to_thread(self._make_manager)
                break
            except ModuleNotFoundError as error:
                log.error("/mcp can't be served: %s", error)
                self._refusal = (501, _NO_SDK)
            except AlmanacError as error:
                log.error("/mcp can't be served: %s", error)
                self._refusal = (503, _NO_WAREHOUSE)
            except Exception:
                log.exception("/mcp can't be served")
                self._refusal = (500, _FAILED)
            # The next request tries again.
            self._wanted.clear()
            self._begun.set()
        try:
            async with manager.run():
                self._manager = manager
                self._begun.set()
                await asyncio.Event().wait()
        finally:
            self._manager = None
            toolbox.close()

    def _make_manager(self) -> tuple[Any, Any]:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from almanac.mcp.server import make_server
        from almanac.mcp.toolbox import Toolbox

        toolbox = Toolbox(
            self._place.warehouse,
            clock=self._place.now,
            trust_clock=True,
            is_replay=self._place.is_replay,
        )
        server = make_server(toolbox.call)
        return toolbox, StreamableHTTPSessionManager(server, json_response=True, stateless=True)
