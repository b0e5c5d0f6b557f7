"""`almanac mcp`: an assistant queries the warehouse over standard input and output."""

import asyncio
import os
import sys
from functools import partial

from almanac.command_line import stop_by_signals
from almanac.commands import locate_warehouse
from almanac.console import EXIT_INTERRUPTED, HomeOption, fail, warnings
from almanac.core.files import remove_own_folders

_SDK = ("mcp", "mcp_types", "pydantic")


def mcp(home: HomeOption = None) -> None:
    """Answer an assistant over the Model Context Protocol, on standard input and output."""
    try:
        from almanac.mcp.server import serve_stdio
        from almanac.mcp.toolbox import Toolbox
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SDK:
            raise
        fail("the MCP SDK is not installed: pip install 'crypto-almanac[mcp]'")
    if sys.stdin.isatty():
        warnings.print("Waiting for an MCP client on standard input; Ctrl-C ends.")
    toolbox = Toolbox(partial(locate_warehouse, home))

    def stop() -> None:
        # Not by an exception: the SDK would wait for the next line of the client. A running
        # statement ends with this process.
        remove_own_folders()
        os._exit(EXIT_INTERRUPTED)

    stop_by_signals(stop)
    try:
        asyncio.run(serve_stdio(toolbox.call))
    except* BrokenPipeError:
        pass  # The client left.
    finally:
        toolbox.close()
