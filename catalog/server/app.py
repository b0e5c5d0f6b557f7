"""The ASGI application: layers from the outside in, then the routes.

entry (time and headers of every answer) → metrics → CORS → gateway → gzip → routes
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.contract import decisions
from catalog.server.answers import dated
from catalog.server.cursors import CursorSigner
from catalog.server.dispatch import Dispatcher, GzipWhereAsked
from catalog.server.exchange import Exchange, attach
from catalog.server.export import ExportRoute
from catalog.server.gateway import Gateway
from catalog.server.key_book import KeyRing
from catalog.server.metrics import Metrics, MetricsLayer
from catalog.server.routes import CatalogRoutes
from catalog.server.store import CatalogStore
from catalog.server.usage import UsageBook

_FLUSH_EVERY_S = 1.0

InstantOf = Callable[[Scope], datetime]
"""The service's time for a request; in a sandbox a header may say it."""
Background = Callable[[], Coroutine[Any, Any, None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a user may set; `deprecation` and `sunset` are headers of a version on its way out."""

    cors_origins: Sequence[str] = ()
    time_limit_s: float = decisions.REQUEST_TIMEOUT_S
    deprecation: str | None = None
    sunset: str | None = None

    def headers(self) -> dict[str, str]:
        named = {"Deprecation": self.deprecation, "Sunset": self.sunset}
        return {name: value for name, value in named.items() if value is not None}


def _as_it_is(app: ASGIApp) -> ASGIApp:
    return app


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What a server is made of; a test swaps one part and not a module."""

    store: CatalogStore
    keys: KeyRing
    usage: UsageBook
    cursors: CursorSigner
    instant_of: InstantOf
    options: ServerOptions = field(default_factory=ServerOptions)
    metrics: Metrics = field(default_factory=Metrics)
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    background: Sequence[Background] = ()
    """Run as long as the server does, such as the webhook sender."""
    around: Callable[[ASGIApp], ASGIApp] = _as_it_is
    """A layer around everything but the time of the request; a sandbox's faults."""


def build_app(parts: ServerParts) -> ASGIApp:
    """Return the application that serves the interface over a store."""
    catalog = CatalogRoutes(parts.store, cursors=parts.cursors, usage=parts.usage)
    # The export stands first: its path would else be read as an event's id.
    routes = [ExportRoute(parts.store).route(), *catalog.routes(), *parts.metrics.routes()]
    router = Router(routes, redirect_slashes=False, lifespan=_lifespan(parts))
    app: ASGIApp = GzipWhereAsked(Dispatcher(router, routes))
    app = Gateway(
        app,
        keys=parts.keys,
        usage=parts.usage,
        monotonic_ns=parts.monotonic_ns,
        time_limit_s=parts.options.time_limit_s,
    )
    if parts.options.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=parts.options.cors_origins,
            allow_methods=("GET",),
            allow_headers=(decisions.KEY_HEADER, "authorization", "if-none-match"),
            expose_headers=("etag", "retry-after", "last-modified", "deprecation", "sunset"),
        )
    app = parts.around(MetricsLayer(app, metrics=parts.metrics))
    return Entry(app, instant_of=parts.instant_of, headers=parts.options.headers())


class Entry:
    """Fixes the time of the request, and puts Date and standing headers on every answer."""

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
        running = [asyncio.create_task(_keep_usage(parts.usage))]
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


async def _keep_usage(usage: UsageBook) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY_S)
        counts = usage.unwritten()
        if counts is not None:
            await asyncio.to_thread(usage.write, counts)
