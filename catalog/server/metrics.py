"""What the server counts about itself, in the Prometheus form, on a path of its own."""

import time
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.server.exchange import exchange_of

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
            "Seconds from the request to the end of its answer.",
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
    """ASGI layer that counts every answer, also those of the gateway."""

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
