"""Dagster's web server behind a guard.

    python -m pipeline.ui.webserver --workspace FILE [options]

The UI can launch and delete runs and needs no key, so requests from other sites are refused.
`dagster-webserver` has no place for a middleware: this module builds the same application. The
private import can go when it has one (dagster-io/dagster#2219, open as of 1.13).
"""

import argparse
import socket
import sys
from collections.abc import Sequence
from typing import Final

import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace import context, load_target
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__
from starlette.types import ASGIApp

from catalog.server.request_guard import RequestGuard, RequestRules
from pipeline.ui.programs import WebAddress

GRAPHQL: Final = "/graphql"
_LIVE_DATA_MS: Final = 2000
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})
_END_WITHIN_S: Final = 2


def guarded(
    app: ASGIApp, host: str, names: Sequence[str] = (), *, path_prefix: str = ""
) -> RequestGuard:
    """Return the application with a guard that accepts only `host` and `names`."""
    graphql = (GRAPHQL, path_prefix + GRAPHQL)
    rules = RequestRules((host, *names), own_addresses=host in _EVERY_ADDRESS, graphql=graphql)
    return RequestGuard(app, rules)


def main() -> None:
    """Serve until a signal.

    Raises:
        SystemExit: the address can't be bound, or the workspace can't be read.
    """
    parser = argparse.ArgumentParser("pipeline.ui.webserver", description=__doc__)
    parser.add_argument("--workspace", action="append", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--path-prefix", default="")
    parser.add_argument("--known-as", action="append", default=[])
    parser.add_argument("--read-only", action="store_true")
    given = parser.parse_args()
    address = WebAddress(host=given.host, port=given.port, path_prefix=given.path_prefix)
    with (
        _listen(address) as listening,
        DagsterInstance.get() as instance,
        context.WorkspaceProcessContext(
            instance,
            load_target.WorkspaceFileTarget(given.workspace),
            version=__version__,
            read_only=given.read_only,
        ) as workspace,
    ):
        app = create_app_from_workspace_process_context(
            workspace, given.path_prefix, live_data_poll_rate=_LIVE_DATA_MS
        )
        config = uvicorn.Config(
            guarded(app, given.host, given.known_as, path_prefix=given.path_prefix),
            log_level="warning",
            # An open page holds a connection for as long as it is open.
            timeout_graceful_shutdown=_END_WITHIN_S,
        )
        uvicorn.Server(config).run(sockets=[listening])


def _listen(address: WebAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=2048)
    except OSError as error:
        sys.exit(f"{address.url} can't be served: {error.strerror or error}")


if __name__ == "__main__":
    main()
