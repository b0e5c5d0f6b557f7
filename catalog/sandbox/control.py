"""The sandbox's own layer: headers that set time and faults, the request log, the control path.

The outermost layer. `/sandbox/…` is for programs on this machine. The log is for tests that count
requests.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import errors
from catalog.sandbox.faults import FAULTS, FaultBoard, attach_faults, parse_faults
from catalog.sandbox.sandbox_clock import SandboxClock, checked
from catalog.server.control_path import answer_order, decode_order, read_instant
from catalog.server.exchange import Exchange, attach, dated, error_answer, get_exchange

_REQUESTS_MAX = 200_000


class SeenRequest(NamedTuple):
    """One request and its response. The key is not kept, only its plan."""

    at: datetime
    method: str
    path: str
    query: str
    plan: str | None
    status: int
    faults: tuple[str, ...] = ()


class RequestsSeen:
    """The newest requests, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: deque[SeenRequest] = deque(maxlen=_REQUESTS_MAX)

    def add(self, request: SeenRequest) -> None:
        with self._lock:
            self._seen.append(request)

    def all(self) -> list[SeenRequest]:
        with self._lock:
            return list(self._seen)

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()


CONTROL_PATH = "/sandbox/"
NOW_HEADER = b"sandbox-now"
FAULTS_HEADER = b"sandbox-faults"
_NOW_KEY = "almanac.sandbox.now"
_FAULTLESS_PREFIXES = ("/v2/openapi", "/docs", "/healthz", "/metrics")


class ClockOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets, advances or starts the clock; in that order when several are given."""

    now: str | None = None
    advance_s: float | None = None
    running: bool | None = None


class FaultsOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    faults: str


class SandboxLayer:
    """ASGI layer around the server."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: SandboxClock,
        faults: FaultBoard,
        seen: RequestsSeen,
        on_clock_moved: Callable[[], None],
    ) -> None:
        self._app = app
        self._clock = clock
        self._faults = faults
        self._seen = seen
        self._on_clock_moved = on_clock_moved

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(CONTROL_PATH):
            attach(scope, Exchange(now=self._clock.now()))
            await self._control(scope, receive, dated(scope, send))
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        names: tuple[str, ...] = ()
        started = False

        def record(status: int) -> None:
            exchange = get_exchange(scope)
            self._seen.add(
                SeenRequest(
                    at=exchange.now,
                    method=scope["method"],
                    path=scope["path"],
                    query=scope["query_string"].decode("latin-1"),
                    plan=None if exchange.grant is None else exchange.grant.plan.name,
                    status=status,
                    faults=names,
                )
            )

        def send_recorded(message: Message) -> Awaitable[None]:
            # Before the response leaves: a caller that has its response finds its request recorded.
            nonlocal started
            if message["type"] == "http.response.start" and not started:
                started = True
                record(message["status"])
            return send(message)

        try:
            names = self._prepare(scope)
        except errors.ApiError as error:
            attach(scope, Exchange(now=self._clock.now()))
            await error_answer(error, scope)(scope, receive, dated(scope, send))
            return
        try:
            await self._app(scope, receive, send_recorded)
        finally:
            if not started:
                record(0)

    def _prepare(self, scope: Scope) -> tuple[str, ...]:
        """Read the two headers. Raises InvalidParameter when one is malformed."""
        path: str = scope["path"]
        own = ""
        for name, value in scope["headers"]:
            if name == NOW_HEADER:
                scope[_NOW_KEY] = _instant(value.decode("latin-1"), "Sandbox-Now")
            elif name == FAULTS_HEADER:
                own = value.decode("latin-1")
        if path.startswith(_FAULTLESS_PREFIXES):
            return ()
        drawn = self._faults.draw(path)
        if own:
            try:
                drawn += self._faults.draw_from(parse_faults(own), path)
            except ValueError as error:
                raise errors.InvalidParameter(f"Sandbox-Faults: {error}") from error
        if not drawn:
            return ()
        attach_faults(scope, drawn)
        return tuple(fault.name for fault in drawn)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def run(body: bytes) -> dict[str, Any]:
            return self._run_command(scope["method"], scope["path"], body)

        await answer_order(scope, receive, send, run)

    def _run_command(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        match method, path.removeprefix(CONTROL_PATH):
            case ("GET", "clock"):
                pass
            case ("PUT", "clock"):
                self._move_clock(decode_order(body, ClockOrder))
            case ("GET", "faults"):
                return {"on": self._faults.on(), "known": FAULTS}
            case ("PUT", "faults"):
                try:
                    self._faults.set(decode_order(body, FaultsOrder).faults)
                except ValueError as error:
                    raise errors.InvalidParameter(str(error)) from error
                return {"on": self._faults.on(), "known": FAULTS}
            case ("GET", "requests"):
                return {"requests": [request._asdict() for request in self._seen.all()]}
            case ("DELETE", "requests"):
                self._seen.clear()
                return {"requests": []}
            case (_, "clock" | "faults" | "requests"):
                raise errors.MethodNotAllowed()
            case _:
                raise errors.NotFound("The control path has clock, faults and requests")
        return {"now": self._clock.now(), "running": self._clock.running}

    def _move_clock(self, order: ClockOrder) -> None:
        try:
            moved = self._clock.now() if order.now is None else _instant(order.now, "now")
            if order.advance_s is not None:
                moved = checked(moved + timedelta(seconds=order.advance_s))
        except (ValueError, OverflowError) as error:
            raise errors.InvalidParameter(f"the clock was not changed: {error}") from error
        runs_on = self._clock.running if order.now is None else False
        if order.now is not None or order.advance_s is not None or order.running is False:
            self._clock.set(moved)
        if order.running or (order.running is None and runs_on):
            self._clock.run()
        self._on_clock_moved()


def instant_of_request(scope: Scope, clock: SandboxClock) -> datetime:
    """Return the time in the request's header, else the clock's."""
    own: datetime | None = scope.get(_NOW_KEY)
    return clock.now() if own is None else own


def _instant(text: str, name: str) -> datetime:
    try:
        return checked(read_instant(text))
    except ValueError as error:
        raise errors.InvalidParameter(f"{name}: {error}") from error
