"""The application: its middleware from the outside in, its routes, and its background tasks."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.contract import constants
from catalog.contract.errors import ApiError
from catalog.contract.openapi import openapi_document
from catalog.contract.parameters import Parameter
from catalog.server.accounts import KeyBook, UsageBook
from catalog.server.body_limit import BodyLimit
from catalog.server.docs_page import Node, document_routes
from catalog.server.middleware import (
    OPEN_PATHS,
    AccessLog,
    Authentication,
    IgnoredParameters,
    Metrics,
    RateLimit,
    TimeLimit,
)
from catalog.server.request_guard import HostGuard, check_origin, origin_pattern
from catalog.server.responses import answer_exception
from catalog.server.routes import ROUTES
from catalog.server.sql_store import SqlStore

_FLUSH_EVERY_S = 1.0
_BASE_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_HANDLERS = {ApiError: answer_exception, HTTPException: answer_exception}
Background = Callable[[], Coroutine[Any, Any, None]]
Layer = Callable[[ASGIApp], ASGIApp]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server; `deprecation` and `sunset` are headers that announce the end of a
    version. `base_path` is the prefix of the addresses behind a proxy, such as `/almanac`.

    Raises:
        ValueError: an origin can never match, or the prefix is not a path such as `/almanac`.
    """

    cors_origins: Sequence[str] = ()
    time_limit_s: float = constants.REQUEST_TIMEOUT_S
    export_interval_s: float = constants.EXPORT_INTERVAL_S
    deprecation: str | None = None
    sunset: str | None = None
    base_path: str = ""

    def __post_init__(self) -> None:
        for origin in self.cors_origins:
            check_origin(origin)
        if not _BASE_PATH.fullmatch(self.base_path):
            raise ValueError(f"{self.base_path!r} is not a path; expected one such as /almanac")


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts of a server; a test can replace each of them."""

    store: Callable[[datetime], SqlStore]
    """Returns the store that answers at a time of the service's clock."""
    keys: KeyBook
    usage: UsageBook
    now: Callable[[], datetime]
    options: ServerOptions = field(default_factory=ServerOptions)
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    document: Callable[[], Node] = openapi_document
    routes: Sequence[Route] = ()
    """Routes that the interface does not have, or that replace one."""
    background: Sequence[Background] = ()
    """Tasks that run as long as the server, such as the webhook sender."""
    around: Sequence[Layer] = ()
    """Middleware before the key is checked, the outermost first: a sandbox's faults, pages."""
    inside: Sequence[Layer] = ()
    """Middleware around the routes, under the time limit: a sandbox's delays, a mirror's as_of."""
    extensions: Callable[[str], Sequence[Parameter]] = lambda path: ()
    """Returns the query parameters of a path that the interface does not have."""
    lags: bool = True
    """Whether responses lag by the plan's freshness, and the export by a snapshot a day."""
    open_paths: frozenset[str] = OPEN_PATHS
    """Paths that need no key."""
    guard: bool = False
    """Whether to refuse unknown hosts and other sites: a server on loopback that needs no key."""


def build_app(parts: ServerParts) -> Starlette:
    """Return the application that serves the interface over a store."""
    options, metrics = parts.options, Metrics()
    ends = {"Deprecation": options.deprecation, "Sunset": options.sunset}
    headers = {name: value for name, value in ends.items() if value is not None}
    middleware = [
        Middleware(AccessLog, parts.now, metrics, headers, options.base_path),
        *([Middleware(HostGuard, origins=options.cors_origins)] if parts.guard else []),
        *([_cors(options.cors_origins)] if options.cors_origins else []),
        Middleware(BodyLimit),
        Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5),
        *(Middleware(_of_requests(layer)) for layer in parts.around),
        Middleware(Authentication, keys=parts.keys, open_paths=parts.open_paths),
        Middleware(
            RateLimit,
            usage=parts.usage,
            monotonic_ns=parts.monotonic_ns,
            export_interval_s=options.export_interval_s,
        ),
        # Here, so that the response to an exception has the headers of the layers around it.
        Middleware(ExceptionMiddleware, handlers={**_HANDLERS, Exception: answer_exception}),
        Middleware(TimeLimit, limit_s=options.time_limit_s),
        *(Middleware(_of_requests(layer)) for layer in parts.inside),
        Middleware(IgnoredParameters, extensions=parts.extensions),
    ]
    app = Starlette(
        routes=[*parts.routes, *document_routes(parts.document, options.base_path), *ROUTES],
        middleware=middleware,
        exception_handlers=_HANDLERS,
        lifespan=_lifespan(parts),
    )
    app.router.redirect_slashes = False
    app.state.store, app.state.lags = parts.store, parts.lags
    app.state.usage, app.state.metrics = parts.usage, metrics
    return app


def _of_requests(layer: Layer) -> Layer:
    """Return a layer that gets HTTP requests only, since a router would also answer lifespan
    messages."""

    def make(app: ASGIApp) -> ASGIApp:
        layered = layer(app)

        async def ask(scope: Scope, receive: Receive, send: Send) -> None:
            await (layered if scope["type"] == "http" else app)(scope, receive, send)

        return ask

    return make


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origin_regex=origin_pattern(origins),
        allow_methods="*",
        allow_headers="*",
        # For a page of the internet that asks a server on loopback.
        allow_private_network=True,
        expose_headers=(
            *("ETag", "Last-Modified", "Date", "Retry-After", "Deprecation", "Sunset"),
            *("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-As-Of"),
            *("X-Truncated", "X-Ignored-Parameters", "Content-Disposition", "WWW-Authenticate"),
            *("Mcp-Session-Id", "MCP-Protocol-Version"),
        ),
    )


def _lifespan(parts: ServerParts) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        running = [asyncio.create_task(_write_usage(parts.usage))]
        running += [asyncio.create_task(background()) for background in parts.background]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            ends = await asyncio.gather(*running, return_exceptions=True)
            parts.usage.flush()
            for end in ends:
                if isinstance(end, Exception):
                    raise end

    return lifespan


async def _write_usage(usage: UsageBook) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY_S)
        await asyncio.to_thread(usage.flush)
