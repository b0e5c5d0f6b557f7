"""The ASGI application: layers from the outside in, then the routes, and the server's metrics.

entry (time and headers of every answer) → metrics → CORS → gateway → gzip → routes
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import constants
from catalog.server.accounts import KeyRing, UsageBook
from catalog.server.exchange import Exchange, attach, dated, exchange_of
from catalog.server.gateway import Gateway
from catalog.server.routes import CatalogRoutes, CursorSigner, ExportRoute
from catalog.server.store import CatalogStore

_GZIP_LEVEL = 5
_GZIP_FROM_BYTES = 1_000


class Dispatcher:
    """Finds the handler of a GET in two dicts; the router does the rest.

    The router tries one pattern after the other, which costs as much as a small answer.
    """

    def __init__(self, router: Router, routes: Sequence[Route]) -> None:
        self._router = router
        self._exact = {route.path: route.endpoint for route in routes if "{" not in route.path}
        # `/v2/events/{id}`: by the part before the last slash, with the parameter's name.
        self._below = {
            route.path.rpartition("/")[0]: (route.endpoint, route.path.rpartition("{")[2][:-1])
            for route in routes
            if "{" in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            path: str = scope["path"]
            handler = self._exact.get(path)
            if handler is None:
                above, _, value = path.rpartition("/")
                below = self._below.get(above)
                if below is not None and value:
                    handler, name = below
                    scope["path_params"] = {name: value}
            if handler is not None:
                response = await handler(Request(scope, receive))
                await response(scope, receive, send)
                return
        # Inside an application the router raises 404 and 405, and the gateway makes the answer.
        scope.setdefault("app", self._router)
        await self._router(scope, receive, send)


class GzipWhereAccepted:
    """Compresses the answers to requests that accept it."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = scope["type"] == "http" and any(
            name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"]
        )
        await (self._gzip if accepted else self._plain)(scope, receive, send)


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)


class Metrics:
    """Counters of one server; labels are the route's name, the plan and the status."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "almanac_requests",
            "Requests answered.",
            ("route", "plan", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "almanac_request_seconds",
            "Seconds from the request to the end of its response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def routes(self) -> list[Route]:
        return [
            Route("/metrics", self.get_metrics),
            Route("/healthz", self.get_health),
        ]

    async def get_metrics(self, request: Request) -> Response:
        exchange_of(request.scope).route = "metrics"
        body = generate_latest(self.registry)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def get_health(self, request: Request) -> Response:
        exchange_of(request.scope).route = "healthz"
        return JSONResponse({"status": "ok"})


class MetricsLayer:
    """ASGI layer that counts every answer, also errors of the gateway."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._count = lru_cache(maxsize=1_024)(metrics.requests.labels)
        self._time = lru_cache(maxsize=64)(metrics.seconds.labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            exchange = exchange_of(scope)
            plan = "none" if exchange.grant is None else exchange.grant.plan.name
            self._count(exchange.route, plan, str(status)).inc()
            self._time(exchange.route).observe(time.perf_counter() - began)


_FLUSH_EVERY_S = 1.0

InstantOf = Callable[[Scope], datetime]
"""Returns the service's time for a request; in a sandbox a header may set it."""
Background = Callable[[], Coroutine[Any, Any, None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a user may set; `deprecation` and `sunset` are headers of a version that ends."""

    cors_origins: Sequence[str] = ()
    time_limit_s: float = constants.REQUEST_TIMEOUT_S
    export_interval_s: float = constants.EXPORT_INTERVAL_S
    deprecation: str | None = None
    sunset: str | None = None

    def headers(self) -> dict[str, str]:
        named = {"Deprecation": self.deprecation, "Sunset": self.sunset}
        return {name: value for name, value in named.items() if value is not None}


def _no_layer(app: ASGIApp) -> ASGIApp:
    return app


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts of a server; a test swaps a part and not a module."""

    store: CatalogStore
    keys: KeyRing
    usage: UsageBook
    cursors: CursorSigner
    instant_of: InstantOf
    options: ServerOptions = field(default_factory=ServerOptions)
    metrics: Metrics = field(default_factory=Metrics)
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    background: Sequence[Background] = ()
    """Tasks that run as long as the server, such as the webhook sender."""
    around: Callable[[ASGIApp], ASGIApp] = _no_layer
    """A layer around everything but the time of the request; a sandbox's faults."""
    inside: Callable[[ASGIApp], ASGIApp] = _no_layer
    """A layer within the gateway, under its time limit; a sandbox's delays."""


def build_app(parts: ServerParts) -> ASGIApp:
    """Return the application that serves the interface over a store."""
    catalog = CatalogRoutes(parts.store, cursors=parts.cursors, usage=parts.usage)
    # The export is first: otherwise its path would be read as an event's id.
    routes = [ExportRoute(parts.store).route(), *catalog.routes(), *parts.metrics.routes()]
    router = Router(routes, redirect_slashes=False, lifespan=_lifespan(parts))
    app = parts.inside(GzipWhereAccepted(Dispatcher(router, routes)))
    app = Gateway(
        app,
        keys=parts.keys,
        usage=parts.usage,
        monotonic_ns=parts.monotonic_ns,
        time_limit_s=parts.options.time_limit_s,
        export_interval_s=parts.options.export_interval_s,
    )
    if parts.options.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=parts.options.cors_origins,
            allow_methods=("GET",),
            allow_headers=(constants.KEY_HEADER, "authorization", "if-none-match"),
            expose_headers=(
                *("etag", "retry-after", "last-modified", "deprecation", "sunset"),
                *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
            ),
        )
    app = parts.around(MetricsLayer(app, metrics=parts.metrics))
    return EntryLayer(app, instant_of=parts.instant_of, headers=parts.options.headers())


class EntryLayer:
    """Sets the time of the request, and adds Date and fixed headers to every answer."""

    def __init__(self, app: ASGIApp, *, instant_of: InstantOf, headers: Mapping[str, str]) -> None:
        self._app = app
        self._instant_of = instant_of
        self._headers = [(k.lower().encode(), v.encode()) for k, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        attach(scope, Exchange(now=self._instant_of(scope)))
        await self._app(scope, receive, dated(scope, send, self._headers))


def _lifespan(parts: ServerParts) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        running = [asyncio.create_task(_write_usage(parts.usage))]
        running += [asyncio.create_task(background()) for background in parts.background]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            for task in running:
                with suppress(asyncio.CancelledError):
                    await task
            parts.usage.flush()

    return lifespan


async def _write_usage(usage: UsageBook) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY_S)
        counts = usage.unwritten()
        if counts is not None:
            await asyncio.to_thread(usage.write, counts)
