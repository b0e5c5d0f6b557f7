"""`almanac mcp`: an assistant queries the warehouse over standard input and output."""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from almanac.command_line import stop_by_signals
from almanac.commands import locate_warehouse
from almanac.console import EXIT_INTERRUPTED, HomeOption, fail, warnings
from almanac.errors import AlmanacError, WarehouseError
from almanac.reading.temporary_files import remove_own_folders

if TYPE_CHECKING:
    from almanac.mcp.toolbox import Toolbox


def mcp(home: HomeOption = None) -> None:
    """Answer an assistant over the Model Context Protocol, on standard input and output."""
    try:
        from almanac.mcp.server import serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fail("the MCP SDK is not installed: pip install 'crypto-almanac[mcp]'")
    if sys.stdin.isatty():
        warnings.print("Waiting for an MCP client on standard input; Ctrl-C ends.")
    toolbox = _LateToolbox(home)

    def stop() -> None:
        # Not by an exception: the SDK would wait for the next line of the client.
        toolbox.stop()
        remove_own_folders()
        os._exit(EXIT_INTERRUPTED)

    stop_by_signals(stop)
    try:
        asyncio.run(serve_stdio(toolbox.call))
    finally:
        toolbox.close()


class _LateToolbox:
    """The tools of a home, opened by the first call.

    An assistant starts the program long before a person asks, so a home that can't be read is
    the answer of each call, and not the end of the program.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._opened: list[Toolbox] = []

    def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        from almanac.mcp.toolbox import Toolbox

        with self._lock:
            try:
                self._opened = self._opened or [Toolbox(locate_warehouse(self._home))]
            except AlmanacError as error:
                warnings.print(f"almanac: {error}", soft_wrap=True)
                raise WarehouseError(
                    "The warehouse can't be read: its file is missing, damaged or not published "
                    "yet. The log of this program (standard error) has the reason. `almanac run` "
                    "or `almanac merge` of the application publishes it; then ask again."
                ) from error
        return self._opened[0].call(name, given)

    def stop(self) -> None:
        """End running statements. It waits for nothing."""
        for toolbox in self._opened:
            toolbox.stop()

    def close(self) -> None:
        for toolbox in self._opened:
            toolbox.close()
