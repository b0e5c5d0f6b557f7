"""`almanac mcp`: the questions of a warehouse for an assistant, over standard input and output."""

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from almanac.command_line import stop_by_signals
from almanac.console import EXIT_INTERRUPTED, HomeOption, fail, warnings
from almanac.errors import AlmanacError, WarehouseError
from almanac.reading.temporary import remove_own_folders

if TYPE_CHECKING:
    from almanac.mcp.toolbox import Toolbox


def mcp(home: HomeOption = None) -> None:
    """Answer an assistant over the Model Context Protocol, on standard input and output."""
    gc.disable()  # The SDK makes 100,000 objects that stay.
    try:
        with _without_init("mcp", "mcp.server"):
            from almanac.mcp.server import serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fail("the MCP SDK is not installed: pip install 'crypto-almanac[mcp]'")
    gc.freeze()
    gc.enable()
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
        asyncio.run(_serve(serve_stdio, toolbox))
    finally:
        toolbox.close()


@contextmanager
def _without_init(*names: str) -> Iterator[None]:
    """Import modules of these packages without the packages' own code.

    That code imports clients and web servers, which take 0.4 s and are not used here. Afterwards
    the packages can be imported as usual.
    """
    made: dict[str, ModuleType] = {}
    for name in names:
        if name not in sys.modules:
            spec = find_spec(name)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            made[name] = sys.modules[name] = module_from_spec(spec)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


async def _serve(serve: Any, toolbox: "_LateToolbox") -> None:
    try:
        await serve(toolbox.call, toolbox.open)
    finally:
        # Before the loop waits for its threads.
        toolbox.close()


class _LateToolbox:
    """The tools of a home, opened when the client has its first answer.

    An assistant starts the program long before a person asks, so a home that can't be read is
    the answer of each call, and not the end of the program.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._toolbox: Toolbox | None = None
        self._reported = ""

    def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        self.open()
        if self._toolbox is None:
            raise WarehouseError(
                "The warehouse can't be read: its file is missing, damaged or not published yet. "
                "The log of this program (standard error) has the reason. `almanac run` or "
                "`almanac merge` of the application publishes it; then ask again."
            )
        return self._toolbox.call(name, given)

    def open(self) -> None:
        """Open the file, or report on standard error why it can't be opened."""
        with self._lock:
            if self._toolbox is not None:
                return
            # Imported here: they take a third of a second.
            from almanac.commands import locate_warehouse
            from almanac.mcp.toolbox import Toolbox

            try:
                self._toolbox = Toolbox(locate_warehouse(self._home))
            except AlmanacError as error:
                if str(error) != self._reported:
                    self._reported = str(error)
                    warnings.print(f"almanac: {error}", soft_wrap=True)

    def stop(self) -> None:
        """End running statements. It waits for nothing."""
        if self._toolbox is not None:
            self._toolbox.stop()

    def close(self) -> None:
        if self._toolbox is not None:
            self._toolbox.close()
