"""The faults that can be switched on, how they are written, and the middleware that applies them.

    name[=value][*times][@probability][~part of the path], several joined by commas

`storm=5*20` answers the next 20 requests with 429 and `Retry-After: 5`;
`drop=0.3@0.1~export` breaks one export in ten after 30 % of its bytes. In the header
`Sandbox-Faults` of a single request, the number of times and faults of push have no effect.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from random import Random
from threading import Lock
from typing import Final

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from almanac.core.timestamps import utc_now
from catalog.contract import errors
from catalog.server.accounts import quota_period
from catalog.server.responses import error_response
from catalog.server.webhooks.delivery import AttemptOutcome, Poster

FAULTS: Final[dict[str, str]] = {
    "storm": "429, not counted; value: Retry-After in seconds, `none` for no header (1)",
    "quota": "429 quota_exceeded, with the seconds to the reset",
    "error": "500 after a delay, at most the time limit; value: the delay in seconds (0)",
    "unavailable": "a plain-text response of a gateway; value: 502, 503 or 504 (503), "
    "or `service` for the service's own 503",
    "slow": "a delayed response, a 500 at the time limit; value: the delay in seconds (1)",
    "drop": "the connection breaks inside the body; value: the share sent (0.5)",
    "truncate": "the body ends early but cleanly; value: the share sent (0.5)",
    "html": "200 with an HTML page instead of data",
    "repeat_cursor": "a page returns its own cursor (A to A)",
    "shift_rows": "a page after the first omits its first row",
    "push_twice": "a delivery is posted twice at the same time",
    "push_unanswered": "a delivery is posted, but counts as failed, so it is posted again later",
    "push_shuffled": "deliveries of one advance of the clock are sent in random order",
}
REQUEST_FAULTS: Final = frozenset(name for name in FAULTS if not name.startswith("push_"))
"""The faults in responses to requests. All other faults affect deliveries to webhook endpoints."""

_VALUES: Final[dict[str, tuple[str, float, tuple[str, ...]]]] = {
    "storm": ("1", 1e9, ("none",)),
    "error": ("0", 3601.0, ()),
    "unavailable": ("503", 0.0, ("502", "503", "504", "service")),
    "slow": ("1", 3601.0, ()),
    "drop": ("0.5", 1.0, ()),
    "truncate": ("0.5", 1.0, ()),
}
"""The value of a fault: its default, the exclusive upper bound of its numbers, and its names."""
_NO_VALUE: Final = ("", 0.0, ("",))
_FORM = re.compile(
    r"(?P<name>[a-z_]+)(=(?P<value>[a-z0-9.]+))?(\*(?P<times>[0-9]{1,9}))?"
    r"(@(?P<chance>[0-9.]+))?(~(?P<part>[^,]+))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """`left` is how many more times it applies; None is without an end."""

    name: str
    value: str = ""
    left: int | None = None
    probability: float = 1.0
    path_part: str = ""

    @property
    def number(self) -> float:
        return float(self.value)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read the written form; empty text means no faults.

    Raises:
        ValueError: an unknown name, or a value out of its bounds.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Fault:
    found = _FORM.fullmatch(text)
    if found is None or found["name"] not in FAULTS:
        form = f"name[=value][*times][@chance], with one of {', '.join(FAULTS)}"
        raise ValueError(f"{text!r} is not a fault; write {form}")
    name = found["name"]
    default, below, names = _VALUES.get(name, _NO_VALUE)
    value = found["value"] or default
    try:
        chance = float(found["chance"] or 1)
        in_bounds = 0 <= chance <= 1 and (value in names or 0 <= float(value) < below)
    except ValueError:
        in_bounds = False
    if not in_bounds:
        raise ValueError(f"{text!r}: the value of {name} is out of bounds: {FAULTS[name]}")
    left = None if found["times"] is None else int(found["times"])
    if left == 0:
        raise ValueError(f"{text!r} would affect no request; write *1 or more, or omit it")
    return Fault(name, value, left, chance, found["part"] or "")


class FaultBoard:
    """The faults that are on for every request. Thread-safe; `random` draws the faults that have a
    probability."""

    def __init__(self, text: str = "", *, random: Callable[[], float] | None = None) -> None:
        self._lock = Lock()
        self._random = random or Random(0).random
        self._on = parse_faults(text)

    def set(self, text: str) -> None:
        """Replace the faults that are on; empty text switches all off."""
        faults = parse_faults(text)
        with self._lock:
            self._on = faults

    def clear(self) -> None:
        self.set("")

    def on(self) -> list[dict[str, object]]:
        return [asdict(fault) for fault in self._on]

    def draw(self, path: str, among: Container[str] = REQUEST_FAULTS) -> tuple[Fault, ...]:
        """Return the faults that apply to a path, or an endpoint's URL, and count them down."""
        with self._lock:
            drawn = [fault for fault in self._on if self.applies(fault, path, among)]
            ended = [fault for fault in drawn if fault.left == 1]
            self._on = tuple(
                replace(fault, left=fault.left - 1) if fault.left and fault in drawn else fault
                for fault in self._on
                if fault not in ended
            )
        return tuple(drawn)

    def applies(self, fault: Fault, path: str, among: Container[str] = REQUEST_FAULTS) -> bool:
        if fault.name not in among or fault.path_part not in path:
            return False
        return fault.probability >= 1 or self._random() < fault.probability


@dataclass(eq=False, repr=False)
class DelayLayer:
    """Middleware of the faults `slow` and `error`, inside the server's limits."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        faults: dict[str, Fault] = scope["state"]["faults"]
        if "slow" in faults:
            await asyncio.sleep(faults["slow"].number)
        if "error" in faults:
            delay_s = faults["error"].number
            await asyncio.sleep(delay_s)
            raise errors.RequestTimeout() if delay_s else errors.InternalError()
        await self.app(scope, receive, send)


_HTML = "<!doctype html><html><body><h1>We will be right back</h1></body></html>"
_CHANGED_PAGES: Final = frozenset({"repeat_cursor", "shift_rows"})


@dataclass(eq=False, repr=False)
class FaultLayer:
    """Middleware of the other faults: responses in place of the server's, and changed bodies."""

    app: ASGIApp
    time_limit_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        faults: dict[str, Fault] = scope["state"]["faults"]
        if faults.keys() & {"storm", "quota", "unavailable", "html"}:
            delay_s = faults["slow"].number if "slow" in faults else 0.0
            await asyncio.sleep(min(delay_s, self.time_limit_s))
            response = _replace_response(scope, faults)
            if delay_s > self.time_limit_s:
                response = error_response(errors.RequestTimeout(), scope)
            await response(scope, receive, send)
        elif faults.keys() & {*_CHANGED_PAGES, "drop", "truncate"}:
            await self._change(scope, receive, send, faults)
        else:
            await self.app(scope, receive, send)

    async def _change(
        self, scope: Scope, receive: Receive, send: Send, faults: dict[str, Fault]
    ) -> None:
        """Hold the whole response, change its body, and send the part that is left of it."""
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, hold)
        start, body = messages[0], b"".join(each.get("body", b"") for each in messages[1:])
        if start["status"] == 200:
            cursor = Request(scope).query_params.get("cursor", "")
            for name in _CHANGED_PAGES & faults.keys():
                body = _change_page(name, cursor, body)
        headers = MutableHeaders(scope=start)
        del headers["content-length"], headers["etag"]
        cuts = [faults[name].number for name in ("drop", "truncate") if name in faults]
        if "drop" in faults:
            headers["content-length"] = str(len(body))
        await send(start)
        cut = body[: int(len(body) * cuts[-1])] if cuts else body
        await send({"type": "http.response.body", "body": cut, "more_body": True})
        if "drop" in faults:
            # Without a pause the bytes sent may be lost with the connection.
            await asyncio.sleep(0.01)
            raise ConnectionError("connection broken on purpose")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _change_page(name: str, cursor: str, body: bytes) -> bytes:
    """Return the body with the fault applied; a body without a page stays as it is."""
    page = msgspec.json.decode(body) if body.startswith(b"{") else {}
    if "meta" not in page:
        return body
    if name == "repeat_cursor":
        page["meta"]["cursor"] = cursor or page["meta"]["cursor"]
    elif cursor:
        del page["data"][:1]
    return msgspec.json.encode(page)


def _replace_response(scope: Scope, faults: dict[str, Fault]) -> Response:
    if "storm" in faults:
        value = faults["storm"].value
        headers = {} if value == "none" else {"Retry-After": value}
        return error_response(errors.RateLimited(headers=headers), scope)
    if "quota" in faults:
        now = scope["state"]["now"]
        headers = {"Retry-After": str(ceil((quota_period(now).end - now).total_seconds()))}
        return error_response(errors.QuotaExceeded(headers=headers), scope)
    if "unavailable" in faults:
        value = faults["unavailable"].value
        if value == "service":
            return error_response(errors.ServiceUnavailable(), scope)
        return Response("upstream unavailable", int(value), {"Content-Type": "text/plain"})
    return Response(_HTML, headers={"Content-Type": "text/html"})


class FaultyPush(Poster):
    """Posts deliveries, and says when new ones are due, with the faults that are on."""

    def __init__(self, faults: FaultBoard, tls: ssl.SSLContext | None) -> None:
        super().__init__(tls=tls)
        self._faults = faults
        self._random = Random(0).random

    def due(self) -> datetime:
        """Return when a new delivery is due: now, or when shuffled at a random time before."""
        is_shuffled = self._faults.draw("", among=("push_shuffled",))
        return utc_now() - timedelta(hours=self._random() if is_shuffled else 0)

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        drawn = self._faults.draw(url, among=("push_twice", "push_unanswered"))
        names = [fault.name for fault in drawn]
        post = partial(super().post, allow_private=allow_private, body=body, headers=headers)
        # At the same time, which is the harder case for a receiver.
        first, *_ = await asyncio.gather(*map(post, [url] * (2 if "push_twice" in names else 1)))
        if "push_unanswered" in names:
            return AttemptOutcome(None, "the answer was lost: fault push_unanswered")
        return first
