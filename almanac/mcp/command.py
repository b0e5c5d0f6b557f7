"""`almanac mcp`: the questions of a warehouse for an assistant, over standard input and output."""

import asyncio
import gc
import sys

from almanac.commands import HomeOption, locate_warehouse
from almanac.console import fail


def mcp(home: HomeOption = None) -> None:
    """Answer an assistant over the Model Context Protocol, on standard input and output."""
    gc.disable()  # The SDK makes 100,000 objects that stay.
    try:
        from almanac.mcp.server import serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fail("the MCP SDK is not installed: pip install 'crypto-almanac[mcp]'")
    from almanac.mcp.tools import Toolbox

    gc.enable()
    toolbox = Toolbox(locate_warehouse(home))
    if sys.stdin.isatty():
        print("Waiting for an MCP client on standard input; Ctrl-C ends.", file=sys.stderr)  # noqa: T201
    asyncio.run(serve_stdio(toolbox))
