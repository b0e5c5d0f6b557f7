"""Dagster's web server behind a guard: `python -m application.dagster_ui --workspace FILE`.

The UI has no password, and `dagster-webserver` runs what any web page sends, mutations by GET
included. It takes no middleware (dagster-io/dagster#2219, open as of 1.13), so this module serves
the same application. Once it does, this module and its private imports can go.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._utils.log import configure_loggers
from dagster_webserver.version import __version__
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.server.request_guard import find_refusal


@dataclass(eq=False, repr=False)
class SiteGuard:
    """Middleware that refuses requests of other sites and to unknown host names."""

    app: ASGIApp
    names: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = find_refusal(scope, names=self.names) if scope["type"] != "lifespan" else None
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            message = "Only Dagster's own pages may send this. Name a proxy's host in --known-as.\n"
            await PlainTextResponse(message, refusal.status_code)(scope, receive, send)


class GuardedWebserver(DagsterWebserver[WorkspaceProcessContext, WorkspaceRequestContext]):
    """Dagster's application behind the guard. GraphQL by GET is refused, on any path."""

    names: Collection[str] = ()

    def build_middleware(self) -> list[Middleware]:
        return [Middleware(SiteGuard, names=self.names), *super().build_middleware()]

    async def execute_graphql_request(
        self,
        request: Request,
        query: str,
        variables: dict[str, Any] | None,
        operation_name: str | None,
    ) -> JSONResponse:
        if request.method != "POST":
            return JSONResponse({"errors": [{"message": "Send GraphQL by POST."}]}, 405)
        return await super().execute_graphql_request(request, query, variables, operation_name)


def main(
    workspace: Annotated[list[Path], typer.Option()],
    host: str = "127.0.0.1",
    port: int = 3000,
    path_prefix: str = "",
    known_as: Annotated[
        list[str], typer.Option(help="A host name of a proxy, in its requests.")
    ] = [],  # noqa: B006
    read_only: bool = False,
    log_format: str = "colored",
) -> None:
    """Serve Dagster's UI until a signal."""
    configure_loggers(formatter=log_format)
    with (
        DagsterInstance.get() as instance,
        WorkspaceProcessContext(
            instance,
            WorkspaceFileTarget([str(path) for path in workspace]),
            version=__version__,
            read_only=read_only,
        ) as context,
    ):
        server = GuardedWebserver(context, path_prefix, live_data_poll_rate=2000)
        server.names = known_as
        # An open page holds its connection.
        uvicorn.run(
            server.create_asgi_app(),
            host=host,
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=2,
        )


if __name__ == "__main__":
    typer.run(main)
