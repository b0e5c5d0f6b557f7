"""The middleware around the routes: the log, the key, the limits (interface 5, 7, 8.1).

Each request that passes `RateLimit` counts once against the quota; a request that a middleware
refuses does not. The state of a request has `now`, `request_id`, `grant`, and `as_of`, which the
mirror sets.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from fractions import Fraction
from math import ceil
from typing import Any
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import constants, errors
from catalog.contract.errors import ApiError
from catalog.contract.parameters import Parameter, list_ignored
from catalog.contract.records import instant_text
from catalog.server.accounts import Grant, KeyBook, UsageBook, quota_period
from catalog.server.responses import answer_exception, error_response, log_failure

log = logging.getLogger(__name__)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)


class Metrics:
    """Counters of one server; labels are the route's name, the plan and the status."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "almanac_requests",
            "Requests answered.",
            ("route", "plan", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "almanac_request_seconds",
            "Seconds from the request to the end of its response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def add(self, scope: Scope, status: int, seconds: float) -> None:
        route, grant = scope.get("route"), scope["state"]["grant"]
        name = "other" if route is None else route.name
        plan = "none" if grant is None else grant.plan.name
        self._requests.labels(name, plan, str(status)).inc()
        self._seconds.labels(name).observe(seconds)


@dataclass(eq=False, repr=False)
class AccessLog:
    """Gives a request its time and id, and its path without the prefix of a proxy; counts it, and
    logs its failure."""

    app: ASGIApp
    now: Callable[[], datetime]
    metrics: Metrics
    headers: Mapping[str, str]
    base_path: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        if f"{scope['path']}/".startswith(f"{self.base_path}/"):
            scope["path"] = scope["path"].removeprefix(self.base_path) or "/"
        state: dict[str, Any] = {"now": self.now(), "grant": None, "as_of": None}
        state["request_id"] = f"req_{secrets.token_hex(12)}"
        scope["state"] = state
        status = 0

        async def send_dated(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["Date"] = format_datetime(state["now"], usegmt=True)
                headers.update(self.headers)
            await send(message)

        try:
            await self.app(scope, receive, send_dated)
        except ClientDisconnect:
            log.warning("The client left: request=%s", state["request_id"])
        except ConnectionError:
            raise  # broken on purpose, by a fault of the sandbox
        except Exception as error:
            if status:
                log_failure(scope, error)
                # Only a broken connection shows the client that the body is not whole.
                raise ConnectionAbortedError("the response failed after it had started") from error
            response = await answer_exception(Request(scope), error)
            await response(scope, receive, send_dated)
        finally:
            self.metrics.add(scope, status, time.monotonic() - began)


OPEN_PATHS = frozenset({"/", constants.OPENAPI_PATH, "/docs", "/healthz", "/metrics"})
"""Paths that need no key and count against no quota."""
_RETIRED = re.compile(r"/v1(/.*)?|/(events|coins|categories)(/.*)?", re.DOTALL)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_BEARER = "bearer "


@dataclass(eq=False, repr=False)
class Authentication:
    """Refuses requests that are too large, requests to retired paths, and requests without exactly
    one valid key."""

    app: ASGIApp
    keys: KeyBook
    open_paths: frozenset[str] = OPEN_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                check_sizes(scope)
                if scope["path"] not in self.open_paths:
                    scope["state"]["grant"] = self._find_grant(scope)
            except ApiError as error:
                await error_response(error, scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _find_grant(self, scope: Scope) -> Grant:
        path: str = scope["path"]
        if _RETIRED.fullmatch(path):
            raise errors.VersionRetired()
        grant = self.keys.resolve_grant(read_presented_keys(scope))
        if grant is None:
            raise errors.Forbidden()
        return grant


def check_sizes(scope: Scope) -> None:
    if len(scope["path"]) > constants.PATH_LENGTH_MAX:
        raise errors.UriTooLong(f"The path is longer than {constants.PATH_LENGTH_MAX}")
    if len(scope["query_string"]) > constants.QUERY_LENGTH_MAX:
        raise errors.UriTooLong(f"The query is longer than {constants.QUERY_LENGTH_MAX}")
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size > (most := constants.HEADERS_BYTES_MAX):
        raise errors.HeadersTooLarge(f"The headers are larger than {most} bytes")


def read_presented_keys(scope: Scope) -> set[str]:
    """Return the keys of the request, from either header (interface 5.2 and 5.3)."""
    headers = Headers(scope=scope)
    found = {value.strip() for value in headers.getlist(constants.KEY_HEADER)}
    for value in headers.getlist("authorization"):
        if value.strip()[: len(_BEARER)].lower() == _BEARER:
            found.add(value.strip()[len(_BEARER) :].strip())
    return found


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Holds up to `burst` tokens, and gains one token every `interval`: whole numbers of one unit.

    Nothing is rounded, so no long run of requests drifts. The caller keeps its only state,
    `full_at`: the time at which the bucket is full again (the theoretical arrival time of GCRA).
    """

    interval: int
    burst: int

    def take(self, full_at: int, now: int) -> tuple[int, int]:
        """Take the next token; return the new `full_at` and the time from which it is valid."""
        full_at = max(full_at, now)
        return full_at + self.interval, max(now, full_at - (self.burst - 1) * self.interval)


@dataclass(eq=False, repr=False)
class RateLimit:
    """Counts the request against quota, rate and export interval; states what is left of the month.

    A refused request takes no token and no quota. A bucket's clock divides a nanosecond into ticks,
    so that the interval of a token is a whole number of ticks.
    """

    app: ASGIApp
    usage: UsageBook
    monotonic_ns: Callable[[], int]
    export_interval_s: float

    def __post_init__(self) -> None:
        self._full_at: dict[tuple[str, str, TokenBucket], int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["state"]["grant"] is None:
            await self.app(scope, receive, send)
            return
        grant: Grant = scope["state"]["grant"]
        now: datetime = scope["state"]["now"]

        async def send_quota(message: Message) -> None:
            limit = grant.monthly_quota
            if message["type"] == "http.response.start" and limit is not None:
                headers = MutableHeaders(scope=message)
                remaining = max(0, limit - self.usage.used(grant, now))
                headers["X-RateLimit-Limit"] = str(limit)
                headers["X-RateLimit-Remaining"] = str(remaining)
                headers["X-RateLimit-Reset"] = instant_text(quota_period(now).end)
            await send(message)

        try:
            # A plan without the export is answered by the route that it has none.
            is_export = scope["path"] == constants.EXPORT_PATH and grant.plan.export
            self._charge(grant, now, is_export=is_export)
            if _CONTROL_CHARACTER.search(scope["path"]):
                # A route would match its path with a line feed at the end.
                raise errors.NotFound("No such path")
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send_quota)
            return
        await self.app(scope, receive, send_quota)

    def _charge(self, grant: Grant, now: datetime, *, is_export: bool) -> None:
        if self.usage.is_exhausted(grant, now):
            wait = quota_period(now).end - now
            raise errors.QuotaExceeded(headers={"Retry-After": str(ceil(wait.total_seconds()))})
        now_ns = self.monotonic_ns()
        taken = {}
        for name, bucket, ticks_per_ns in self._limits(grant, is_export=is_export):
            key, now_ticks = (grant.id, name, bucket), now_ns * ticks_per_ns
            full_at, valid_at = bucket.take(self._full_at.get(key, 0), now_ticks)
            if valid_at > now_ticks:
                wait_s = ceil((valid_at - now_ticks) / 1e9) if name == "export" else 1
                raise errors.RateLimited(headers={"Retry-After": str(wait_s)})
            taken[key] = full_at
        self._full_at.update(taken)
        self.usage.charge(grant, now)

    def _limits(self, grant: Grant, *, is_export: bool) -> Iterator[tuple[str, TokenBucket, int]]:
        """Yield the name of each limit, its bucket, and the ticks in a nanosecond of its clock."""
        own_s = grant.export_interval_s
        interval_s = self.export_interval_s if own_s is None else own_s
        if is_export and interval_s > 0:
            yield "export", TokenBucket(ceil(interval_s * 1e9), 1), 1
        rate = Fraction(str(grant.rate_per_s))
        yield "rate", TokenBucket(rate.denominator * 10**9, grant.burst), rate.numerator


@dataclass(eq=False, repr=False)
class IgnoredParameters:
    """Names the query parameters that have no effect on the response in a header of it.

    `extensions` returns the parameters of a path that the interface does not have.
    """

    app: ASGIApp
    extensions: Callable[[str], Iterable[Parameter]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["query_string"]:
            await self.app(scope, receive, send)
            return
        path, query = scope["path"], scope["query_string"].decode("utf-8", "replace")
        ignored = list_ignored(path, query, self.extensions(path))

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start" and ignored:
                names = ", ".join(map(quote, ignored))
                MutableHeaders(scope=message)["X-Ignored-Parameters"] = names
            await send(message)

        await self.app(scope, receive, send_named)


@dataclass(eq=False, repr=False)
class TimeLimit:
    """Ends a request that has no first byte of its response within the limit."""

    app: ASGIApp
    limit_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_in_time(message: Message) -> None:
            limit.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self.limit_s) as limit:
                await self.app(scope, receive, send_in_time)
        except TimeoutError:
            if not limit.expired():
                raise
            raise errors.RequestTimeout() from None
