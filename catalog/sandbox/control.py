"""The sandbox's middleware: time and faults by header, request log, control path.

`/sandbox/…` is for programs on this machine. The log is for tests that count requests.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import errors
from catalog.sandbox.clock import SandboxClock, check_time
from catalog.sandbox.faults import FAULTS, Fault, FaultBoard, parse_faults
from catalog.server.control_path import CLOCK_TIME, decode_order
from catalog.server.responses import error_response

CONTROL_PATH = "/sandbox/"
_FAULTLESS_PREFIXES = ("/v2/openapi", "/docs", "/healthz", "/metrics")


class LoggedRequest(NamedTuple):
    """One request and its response. The key is not kept, only its plan."""

    at: datetime
    method: str
    path: str
    query: str
    plan: str | None
    status: int
    faults: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class SandboxLayer:
    """Middleware that reads the sandbox's two headers, draws the faults, and logs the request."""

    app: ASGIApp
    faults: FaultBoard
    seen: deque[LoggedRequest]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_logged = False

        async def send_logged(message: Message) -> None:
            # Before the response leaves: a caller that has its response finds its request logged.
            nonlocal is_logged
            if not is_logged:
                is_logged = True
                self._log(scope, message["status"])
            await send(message)

        try:
            self._prepare(scope)
        except errors.ApiError as error:
            await error_response(error, scope)(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send_logged)
        finally:
            if not is_logged:
                self._log(scope, 0)

    def _prepare(self, scope: Scope) -> None:
        """Read the two headers. Raises InvalidParameter when one is malformed."""
        path, headers, state = scope["path"], Headers(scope=scope), scope["state"]
        if "sandbox-now" in headers:
            with _refusal("Sandbox-Now: "):
                state["now"] = check_time(CLOCK_TIME.value(headers["sandbox-now"].strip()))
        drawn: tuple[Fault, ...] = ()
        if not path.startswith(_FAULTLESS_PREFIXES):
            drawn = self.faults.draw(path)
            with _refusal("Sandbox-Faults: "):
                own = parse_faults(headers.get("sandbox-faults", ""))
            drawn += tuple(fault for fault in own if self.faults.applies(fault, path))
        state["faults"] = {fault.name: fault for fault in drawn}

    def _log(self, scope: Scope, status: int) -> None:
        state, grant = scope["state"], scope["state"]["grant"]
        query, plan = scope["query_string"].decode("latin-1"), grant and grant.plan.name
        request = (state["now"], scope["method"], scope["path"], query, plan)
        self.seen.append(LoggedRequest(*request, status, tuple(state["faults"])))


class ClockOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets, advances or starts the clock; in that order when several are given."""

    now: str | None = None
    advance_s: Annotated[float, msgspec.Meta(ge=-1e10, le=1e10)] = 0.0
    running: bool | None = None


class FaultsOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    faults: str


@dataclass(frozen=True, slots=True)
class ControlOrders:
    clock: SandboxClock
    faults: FaultBoard
    seen: deque[LoggedRequest]
    on_clock_moved: Callable[[], None]

    def run(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Obey an order, and return the state after it. Raises ApiError if it can't be obeyed."""
        match method, path:
            case ("GET" | "PUT", "clock"):
                if method == "PUT":
                    self._move_clock(decode_order(body, ClockOrder))
                return {"now": self.clock.now(), "running": self.clock.running}
            case ("GET" | "PUT", "faults"):
                if method == "PUT":
                    with _refusal(""):
                        self.faults.set(decode_order(body, FaultsOrder).faults)
                return {"on": self.faults.on(), "known": FAULTS}
            case ("GET" | "DELETE", "requests"):
                if method == "DELETE":
                    self.seen.clear()
                return {"requests": [request._asdict() for request in list(self.seen)]}
            case (_, "clock" | "faults" | "requests"):
                raise errors.MethodNotAllowed()
        raise errors.NotFound("The control path has clock, faults and requests")

    def _move_clock(self, order: ClockOrder) -> None:
        with _refusal("the clock was not changed: "):
            moved = CLOCK_TIME.value(order.now) or self.clock.now()
            moved = check_time(moved + timedelta(seconds=order.advance_s))
        continues = self.clock.running and order.now is None
        self.clock.set(moved)
        if continues if order.running is None else order.running:
            self.clock.run()
        self.on_clock_moved()


@contextmanager
def _refusal(prefix: str) -> Iterator[None]:
    """Turn the error of a malformed value into an answer."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise errors.InvalidParameter(f"{prefix}{error}") from error
