"""Dagster's pages behind a guard: `python -m pipeline.ui.webserver -h HOST -p PORT -w WORKSPACE`.

The pages can launch and delete runs and need no key, so only requests of the pages are accepted.
Belongs here: starting Dagster's webserver as its own program does. Does not: the rules (guard).
"""

import argparse
from collections.abc import Sequence
from typing import Final

import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._utils.log import configure_loggers
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.cli import (
    DEFAULT_DB_STATEMENT_TIMEOUT,
    DEFAULT_POOL_MAX_OVERFLOW,
    DEFAULT_POOL_RECYCLE,
)
from dagster_webserver.version import __version__
from starlette.types import ASGIApp

from catalog.server.request_guard import RequestGuard, RequestRules

GRAPHQL: Final = "/graphql"
_LIVE_DATA_MS: Final = 2000
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})


def guarded(app: ASGIApp, host: str, names: Sequence[str] = ()) -> RequestGuard:
    """Return the pages with a guard that accepts only `host` and `names`."""
    rules = RequestRules((host, *names), own_addresses=host in _EVERY_ADDRESS, graphql=(GRAPHQL,))
    return RequestGuard(app, rules)


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", dest="host", required=True)
    parser.add_argument("-p", dest="port", type=int, required=True)
    parser.add_argument("-w", dest="workspace", required=True)
    parser.add_argument("--known-as", dest="names", action="append", default=[])
    arguments = parser.parse_args()
    configure_loggers(log_level="INFO")
    with DagsterInstance.get() as instance:
        instance.optimize_for_webserver(
            DEFAULT_DB_STATEMENT_TIMEOUT, DEFAULT_POOL_RECYCLE, DEFAULT_POOL_MAX_OVERFLOW
        )
        with WorkspaceProcessContext(
            instance,
            workspace_load_target=WorkspaceFileTarget([arguments.workspace]),
            version=__version__,
        ) as workspace:
            app = create_app_from_workspace_process_context(
                workspace, live_data_poll_rate=_LIVE_DATA_MS
            )
            uvicorn.run(
                guarded(app, arguments.host, arguments.names),
                host=arguments.host,
                port=arguments.port,
                log_level="warning",
            )


if __name__ == "__main__":
    main()
