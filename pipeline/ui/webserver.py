"""Dagster's pages behind a guard, served in a thread.

The pages can launch and delete runs and need no key, so only requests of the pages are accepted.
Belongs here: serving Dagster's application. Does not: the rules (guard), the daemon (daemon).
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import uvicorn
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.types import ASGIApp

from catalog.server.request_guard import RequestGuard, RequestRules
from pipeline.ui.names import PagesAddress
from pipeline.ui.workspace import SharedWorkspace

GRAPHQL: Final = "/graphql"
_LIVE_DATA_MS: Final = 2000
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})
_END_WITHIN_S: Final = 2


def guarded(
    app: ASGIApp, host: str, names: Sequence[str] = (), *, path_prefix: str = ""
) -> RequestGuard:
    """Return the pages with a guard that accepts only `host` and `names`."""
    graphql = (GRAPHQL, path_prefix + GRAPHQL)
    rules = RequestRules((host, *names), own_addresses=host in _EVERY_ADDRESS, graphql=graphql)
    return RequestGuard(app, rules)


class QuietServer(uvicorn.Server):
    """A server that looks once a second whether to end; uvicorn's own does ten times."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 - it also renews the header Date
            await asyncio.sleep(1)


@contextmanager
def listening(pages: PagesAddress) -> Iterator[socket.socket]:
    """Bind the address of the pages.

    Raises:
        SystemExit: it can't be bound; the text says why.
    """
    family = socket.AF_INET6 if ":" in pages.host else socket.AF_INET
    try:
        bound = socket.create_server((pages.host, pages.port), family=family, backlog=2048)
    except OSError as error:
        sys.exit(f"{pages.url} can't be served: {error.strerror or error}")
    with bound:
        yield bound


@contextmanager
def serving(
    pages: PagesAddress, bound: socket.socket, workspace: SharedWorkspace
) -> Iterator[threading.Thread]:
    """Serve the pages in a thread until the block ends."""
    app = create_app_from_workspace_process_context(
        workspace, pages.path_prefix, live_data_poll_rate=_LIVE_DATA_MS
    )
    server = QuietServer(
        uvicorn.Config(
            guarded(app, pages.host, pages.known_as, path_prefix=pages.path_prefix),
            log_level="warning",
            # Open pages hold a connection for as long as they are open.
            timeout_graceful_shutdown=_END_WITHIN_S,
        )
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [bound]}, name="almanac-pages", daemon=True
    )
    thread.start()
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join(_END_WITHIN_S + 1)
