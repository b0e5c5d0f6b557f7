"""`almanac mcp`: the questions of a warehouse for an assistant, over standard input and output."""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from almanac.command_line import stop_by_signals
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
        self._toolbox: Toolbox | None = None

    def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._toolbox is None:
                self._toolbox = self._open()
        return self._toolbox.call(name, given)

    def _open(self) -> "Toolbox":
        # Imported here, so that the help is fast.
        from almanac.commands import locate_warehouse
        from almanac.mcp.toolbox import Toolbox

        try:
            return Toolbox(locate_warehouse(self._home))
        except AlmanacError as error:
            warnings.print(f"almanac: {error}", soft_wrap=True)
            raise WarehouseError(
                "The warehouse can't be read: its file is missing, damaged or not published yet. "
                "The log of this program (standard error) has the reason. `almanac run` or "
                "`almanac merge` of the application publishes it; then ask again."
            ) from error

    def stop(self) -> None:
        """End running statements. It waits for nothing."""
        if self._toolbox is not None:
            self._toolbox.stop()

    def close(self) -> None:
        if self._toolbox is not None:
            self._toolbox.close()
