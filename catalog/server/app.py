"""The ASGI application: its layers from the outside in, then the routes, and its metrics.

    entry (time and headers of every response) → CORS → gzip → gateway → dispatcher → handler

The gateway checks sizes, retired paths, key, quota, rate and time limit, and counts the response in
the metrics. Each request that passes counts once against the quota. A request that the gateway
refuses does not (interface 5, 7, 8.1; decisions on keys, limits and what counts).
"""

import asyncio
import logging
import re
import time
import types
from bisect import bisect_left
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.contract import constants, errors
from catalog.contract.errors import ApiError
from catalog.contract.records import instant_text
from catalog.contract.token_bucket import TokenBucket
from catalog.server.accounts import Grant, KeyRing, UsageBook, quota_period
from catalog.server.exchange import (
    Exchange,
    Handler,
    Header,
    Reply,
    attach,
    dated,
    error_answer,
    get_exchange,
)
from catalog.server.routes import CatalogRoutes, CursorSigner, ExportRoute
from catalog.server.store import CatalogStore

_NS_PER_S = 1_000_000_000


class RateLimiter:
    """Lets up to `burst` requests pass, and `rate_per_s` more each second.

    It divides a nanosecond into ticks, so that the interval of a token is a whole number of ticks.
    """

    __slots__ = ("_bucket", "_full_at", "_ticks_per_ns")

    def __init__(self, *, rate_per_s: float, burst: int) -> None:
        rate = Fraction(str(rate_per_s))
        self._ticks_per_ns = rate.numerator
        self._bucket = TokenBucket(rate.denominator * _NS_PER_S, burst)
        self._full_at = 0

    def take(self, now_ns: int) -> bool:
        """Take one token if there is one."""
        now = now_ns * self._ticks_per_ns
        full_at, valid_at = self._bucket.take(self._full_at, now)
        if valid_at > now:
            return False
        self._full_at = full_at
        return True


class ExportLimiter:
    """Lets one export a key pass in each interval, whatever rate and burst allow."""

    def __init__(self, *, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_ns: dict[str, int] = {}

    def wait_s(self, grant: Grant, now_ns: int) -> float:
        """Return how long the key has to wait for its next export; 0 is now."""
        last_ns = self._last_ns.get(grant.meter_id)
        if last_ns is None:
            return 0.0
        interval_s = self._interval_s
        if grant.export_interval_s is not None:
            interval_s = grant.export_interval_s
        return max(0.0, interval_s - (now_ns - last_ns) / _NS_PER_S)

    def passed(self, grant: Grant, now_ns: int) -> None:
        self._last_ns[grant.meter_id] = now_ns


log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/", constants.OPENAPI_PATH, "/docs", "/healthz", "/metrics"})
"""Paths that need no key and count against no quota."""
_RETIRED = re.compile(r"/v1(/.*)?|/(events|coins|categories)(/.*)?", re.DOTALL)
_BEARER = "bearer "
_FAILED = "%s %s failed: request=%s"


class Gateway:
    """Admits a request, has its handler answer it within the time limit, and counts it."""

    def __init__(
        self,
        handler: Handler,
        *,
        keys: KeyRing,
        usage: UsageBook,
        metrics: "Metrics",
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        time_limit_s: float = constants.REQUEST_TIMEOUT_S,
        export_interval_s: float = constants.EXPORT_INTERVAL_S,
    ) -> None:
        self._handler = handler
        self._keys = keys
        self._usage = usage
        self._metrics = metrics
        self._monotonic_ns = monotonic_ns
        self._time_limit_s = time_limit_s
        self._exports = ExportLimiter(interval_s=export_interval_s)
        self._limiters: dict[str, tuple[tuple[float, int], RateLimiter]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        exchange = get_exchange(scope)
        status = 0
        try:
            reply = await self._reply(scope, exchange, late_at=began + self._time_limit_s)
            reply.raw_headers += self._quota_headers(exchange)
            status = reply.status_code
            await reply(scope, receive, send)
        except Exception as error:
            log.exception(_FAILED, scope["method"], exchange.route, exchange.request_id)
            # Part of the body may be sent: only a broken connection shows the client the failure.
            raise ConnectionAbortedError("the response failed after it had started") from error
        finally:
            plan = "none" if exchange.grant is None else exchange.grant.plan.name
            self._metrics.add(exchange.route, plan, status, time.monotonic() - began)

    async def _reply(self, scope: Scope, exchange: Exchange, *, late_at: float) -> Reply:
        try:
            self._admit(scope, exchange)
            steps = self._handler(scope, exchange).__await__()
            # Most handlers never wait, and to set a timer would take longer than they do.
            try:
                waits_for = next(steps)
            except StopIteration as done:
                reply: Reply = done.value
            else:
                async with asyncio.timeout(late_at - time.monotonic()):
                    reply = await _resume(steps, waits_for)
            # Work that never awaits can't be interrupted, but it is late too.
            if time.monotonic() > late_at:
                raise TimeoutError
            return reply
        except TimeoutError:
            return error_answer(errors.RequestTimeout(), scope)
        except ApiError as error:
            return error_answer(error, scope)
        except Exception:
            log.exception(_FAILED, scope["method"], exchange.route, exchange.request_id)
            return error_answer(errors.InternalError(), scope)

    def _admit(self, scope: Scope, exchange: Exchange) -> None:
        path: str = scope["path"]
        if len(path) > constants.PATH_LENGTH_MAX:
            raise errors.UriTooLong(f"The path is longer than {constants.PATH_LENGTH_MAX}")
        if len(scope["query_string"]) > constants.QUERY_LENGTH_MAX:
            raise errors.UriTooLong(f"The query is longer than {constants.QUERY_LENGTH_MAX}")
        size = 0
        for name, value in scope["headers"]:
            size += len(name) + len(value)
        if size > constants.HEADERS_BYTES_MAX:
            raise errors.HeadersTooLarge(
                f"The headers are larger than {constants.HEADERS_BYTES_MAX} bytes"
            )
        if path in OPEN_PATHS:
            return
        if not path.startswith("/v2/") and _RETIRED.fullmatch(path):
            raise errors.VersionRetired()
        grant = self._keys.grant_of(presented_keys(scope))
        if grant is None:
            raise errors.Forbidden()
        exchange.grant = grant
        # A plan without the export is answered by the route that it has none.
        exports = path == constants.EXPORT_PATH and grant.plan.export
        self._charge(grant, exchange, exports=exports)

    def _charge(self, grant: Grant, exchange: Exchange, *, exports: bool) -> None:
        """Count the request; a refused request takes no token and no quota."""
        if self._usage.exhausted(grant, exchange.now):
            wait = quota_period(exchange.now).end - exchange.now
            raise errors.QuotaExceeded(headers={"Retry-After": str(ceil(wait.total_seconds()))})
        now_ns = self._monotonic_ns()
        wait_s = self._exports.wait_s(grant, now_ns) if exports else 0.0
        if wait_s > 0:
            raise errors.RateLimited(headers={"Retry-After": str(ceil(wait_s))})
        if not self._limiter(grant).take(now_ns):
            raise errors.RateLimited(headers={"Retry-After": "1"})
        if exports:
            self._exports.passed(grant, now_ns)
        self._usage.charge(grant, exchange.now)

    def _quota_headers(self, exchange: Exchange) -> list[Header]:
        """Return what is left of the month, for a response to a valid key (decisions)."""
        if exchange.grant is None:
            return []
        grant, now = exchange.grant, exchange.now
        headers = [(b"x-ratelimit-reset", _reset_of(now.year, now.month))]
        limit = grant.monthly_quota
        if limit is not None:
            remaining = max(0, limit - self._usage.used(grant, now))
            headers += [
                (b"x-ratelimit-limit", b"%d" % limit),
                (b"x-ratelimit-remaining", b"%d" % remaining),
            ]
        return headers

    def _limiter(self, grant: Grant) -> RateLimiter:
        limits = (grant.rate_per_s, grant.burst)
        known = self._limiters.get(grant.meter_id)
        if known is None or known[0] != limits:
            limiter = RateLimiter(rate_per_s=grant.rate_per_s, burst=grant.burst)
            known = self._limiters[grant.meter_id] = (limits, limiter)
        return known[1]


@types.coroutine
def _resume(steps: Generator[Any, Any, Reply], waits_for: Any) -> Generator[Any, Any, Reply]:
    """Continue a call that waits for something, and return its reply."""
    try:
        while True:
            try:
                found = yield waits_for
            except BaseException as error:  # noqa: BLE001 - raised in the call, as await does
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(found)
    except StopIteration as done:
        reply: Reply = done.value
        return reply


@lru_cache(maxsize=64)
def _reset_of(year: int, month: int) -> bytes:
    """Return the text of the reset; made once a month, since each response has it."""
    return instant_text(quota_period(datetime(year, month, 1, tzinfo=UTC)).end).encode()


def presented_keys(scope: Scope) -> set[str]:
    """Return the keys of the request, from either header (interface 5.2 and 5.3)."""
    found: set[str] = set()
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            found.add(value.decode("latin-1").strip())
        elif name == b"authorization":
            text = value.decode("latin-1").strip()
            if text[: len(_BEARER)].lower() == _BEARER:
                found.add(text[len(_BEARER) :].strip())
    return found


METHODS = ("GET", "HEAD")


class Dispatcher:
    """The handler of all paths: finds the one of a path in three dicts."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._exact = {path: handler for path, handler in handlers.items() if "{" not in path}
        # `/v2/events/{id}`: by the part before the last slash.
        self._below = {
            path.rpartition("/")[0]: handler
            for path, handler in handlers.items()
            if path[-1] == "}"
        }
        # `/v2/events/{id}/history`: by the last part.
        self._inside = {
            path.rpartition("/")[2]: (path.partition("{")[0], handler)
            for path, handler in handlers.items()
            if "}/" in path
        }

    def __call__(self, scope: Scope, exchange: Exchange) -> Awaitable[Reply]:
        path: str = scope["path"]
        handler = self._exact.get(path)
        if handler is None:
            above, _, last = path.rpartition("/")
            handler, exchange.name = self._below.get(above) if last else None, last
            if handler is None and last in self._inside:
                before, inside = self._inside[last]
                exchange.name = above.removeprefix(before)
                if above.startswith(before) and exchange.name and "/" not in exchange.name:
                    handler = inside
        if handler is None:
            raise errors.NotFound("No such path")
        if scope["method"] not in METHODS:
            raise errors.MethodNotAllowed(headers={"Allow": ", ".join(METHODS)})
        return handler(scope, exchange)


_GZIP_LEVEL = 5
_GZIP_FROM_BYTES = 1_000


class GzipWhereAccepted:
    """Compresses the responses to requests that accept it."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        for name, value in scope["headers"]:
            if name == b"accept-encoding" and b"gzip" in value:
                return self._gzip(scope, receive, send)
        return self._plain(scope, receive, send)


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)
_BUCKETS = (*(str(float(seconds)) for seconds in _SECONDS), "+Inf")


class Metrics(Collector):
    """Counters of one server; labels are the route's name, the plan and the status."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_BUCKETS))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, route: str, plan: str, status: int, seconds: float) -> None:
        """Count one request and the time to the end of its response."""
        self._requests[route, plan, status] += 1
        self._buckets[route][bisect_left(_SECONDS, seconds)] += 1
        self._seconds[route] += seconds

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        requests = CounterMetricFamily(
            "almanac_requests", "Requests answered.", labels=("route", "plan", "status")
        )
        for (route, plan, status), count in self._requests.items():
            requests.add_metric((route, plan, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "almanac_request_seconds",
            "Seconds from the request to the end of its response.",
            labels=("route",),
        )
        for route, counts in self._buckets.items():
            buckets = list(zip(_BUCKETS, accumulate(counts), strict=True))
            seconds.add_metric((route,), buckets, self._seconds[route])
        yield seconds

    def handlers(self) -> dict[str, Handler]:
        return {"/metrics": self.get_metrics, "/healthz": self.get_health}

    async def get_metrics(self, scope: Scope, exchange: Exchange) -> Response:
        exchange.route = "metrics"
        body = generate_latest(self.registry)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def get_health(self, scope: Scope, exchange: Exchange) -> Response:
        exchange.route = "healthz"
        return JSONResponse({"status": "ok"})


_FLUSH_EVERY_S = 1.0

InstantOf = Callable[[Scope], datetime]
"""Returns the service's time for a request; in a sandbox a header may set it."""
Background = Callable[[], Coroutine[Any, Any, None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a user; `deprecation` and `sunset` are headers of a version that ends."""

    cors_origins: Sequence[str] = ()
    time_limit_s: float = constants.REQUEST_TIMEOUT_S
    export_interval_s: float = constants.EXPORT_INTERVAL_S
    deprecation: str | None = None
    sunset: str | None = None

    def headers(self) -> dict[str, str]:
        named = {"Deprecation": self.deprecation, "Sunset": self.sunset}
        return {name: value for name, value in named.items() if value is not None}


PartT = TypeVar("PartT")


def _unchanged(part: PartT) -> PartT:
    return part


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
    around: Callable[[ASGIApp], ASGIApp] = _unchanged
    """A layer around everything but the time of the request; a sandbox's faults."""
    inside: Callable[[Handler], Handler] = _unchanged
    """A handler around all others, under the time limit; a sandbox's delays."""
    lags: bool = True
    """Whether responses lag by the plan's freshness, and the export by a snapshot a day."""
    extensions: Mapping[str, Handler] = field(default_factory=dict)
    """Handlers of paths that the interface does not have, or that replace one."""


def build_app(parts: ServerParts) -> ASGIApp:
    """Return the application that serves the interface over a store."""
    lags = parts.lags
    catalog = CatalogRoutes(parts.store, cursors=parts.cursors, usage=parts.usage, lags=lags)
    export = ExportRoute(parts.store, lags=lags)
    dispatcher = Dispatcher(
        {
            **catalog.handlers(),
            **export.handlers(),
            **parts.metrics.handlers(),
            **parts.extensions,
        }
    )
    gateway = Gateway(
        parts.inside(dispatcher),
        keys=parts.keys,
        usage=parts.usage,
        metrics=parts.metrics,
        monotonic_ns=parts.monotonic_ns,
        time_limit_s=parts.options.time_limit_s,
        export_interval_s=parts.options.export_interval_s,
    )
    app: ASGIApp = GzipWhereAccepted(gateway)
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
    return EntryLayer(
        parts.around(app),
        lifespan=Router(lifespan=_lifespan(parts)),
        instant_of=parts.instant_of,
        headers=parts.options.headers(),
    )


class EntryLayer:
    """Sets the time of the request, and adds Date and fixed headers to every response."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        lifespan: ASGIApp,
        instant_of: InstantOf,
        headers: Mapping[str, str],
    ) -> None:
        self._app = app
        self._lifespan = lifespan
        self._instant_of = instant_of
        self._headers = [(k.lower().encode(), v.encode()) for k, v in headers.items()]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._lifespan(scope, receive, send)
        attach(scope, Exchange(now=self._instant_of(scope)))
        return self._app(scope, receive, dated(scope, send, self._headers))


def _lifespan(parts: ServerParts) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        running = [asyncio.create_task(_write_usage(parts.usage))]
        running += [asyncio.create_task(background()) for background in parts.background]
        try:
            yield
        finally:
            try:
                for task in running:
                    task.cancel()
                for task in running:
                    with suppress(asyncio.CancelledError):
                        await task
            finally:
                parts.usage.flush()

    return lifespan


async def _write_usage(usage: UsageBook) -> None:
    while True:
        await asyncio.sleep(_FLUSH_EVERY_S)
        counts = usage.unwritten()
        if counts is not None:
            await asyncio.to_thread(usage.write, counts)
