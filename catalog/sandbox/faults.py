"""The faults that can be switched on, how they are written, and the layers that apply them.

    name[=value][*times][@probability][~part of the path], several joined by commas

`storm=5*20` answers the next 20 requests with 429 and `Retry-After: 5`;
`drop=0.3@0.1~export` breaks one export in ten after 30 % of its bytes. In the header
`Sandbox-Faults` of a single request, the number of times and faults of push have no effect.
"""

import asyncio
import csv
import io
import re
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from random import Random
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import errors
from catalog.server.accounts import quota_period
from catalog.server.exchange import Exchange, Handler, Reply, error_answer, get_exchange

_REMEMBERED = 10_000
_DRIFTING = {"title": "headline", "name": "label"}


class PageMemory:
    """Remembers the cursors that were sent, so that pages can be made to repeat."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}
        self._last_row: dict[str, Any] = {}

    def tamper(self, name: str, value: str, scope: Scope, body: bytes) -> bytes:
        """Return the body with the fault applied; a body that it can't apply to is unchanged."""
        if name == "drift" and not body.startswith(b"{"):
            return _drift_csv(value, body)
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body
        if name == "drift":
            return msgspec.json.encode(_drift_json(value, answer))
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            return body
        cursor = parse_qs(scope["query_string"].decode("latin-1")).get("cursor", [""])[0]
        self._remember(cursor, answer)
        TAMPERINGS[name](self, cursor, answer)
        return msgspec.json.encode(answer)

    def repeat_cursor(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor:
            page["meta"]["cursor"] = cursor

    def cycle_cursor(self, cursor: str, page: dict[str, Any]) -> None:
        page["meta"]["cursor"] = self._before.get(cursor, page["meta"]["cursor"])

    def duplicate_rows(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor in self._last_row:
            page["data"].insert(0, self._last_row[cursor])

    def shift_rows(self, cursor: str, page: dict[str, Any]) -> None:
        if cursor:
            del page["data"][:1]

    def _remember(self, cursor: str, page: dict[str, Any]) -> None:
        following = page["meta"].get("cursor")
        if following is None:
            return
        for memory in (self._before, self._last_row):
            if len(memory) >= _REMEMBERED:
                memory.clear()
        if cursor:
            self._before[following] = cursor
        if page["data"]:
            self._last_row[following] = page["data"][-1]


Tampering = Callable[[PageMemory, str, dict[str, Any]], None]


def _no_page_tampering(memory: PageMemory, cursor: str, page: dict[str, Any]) -> None:
    """Drift does not depend on the page; `tamper` applies it before."""


TAMPERINGS: dict[str, Tampering] = {
    "repeat_cursor": PageMemory.repeat_cursor,
    "cycle_cursor": PageMemory.cycle_cursor,
    "duplicate_rows": PageMemory.duplicate_rows,
    "shift_rows": PageMemory.shift_rows,
    "drift": _no_page_tampering,
}


def _drift_json(value: str, answer: Any) -> Any:
    rows = answer["data"] if isinstance(answer, dict) and "data" in answer else [answer]
    for row in rows:
        if isinstance(row, dict):
            _drift_row(value, row)
    return answer


def _drift_row(value: str, row: dict[str, Any]) -> None:
    if value == "extra":
        row["sentiment"] = {"score": 0.5, "votes": 3}
    for known, renamed in _DRIFTING.items():
        if known in row and value == "rename":
            row[renamed] = row.pop(known)
        elif known in row and value == "missing":
            del row[known]
        elif known in row and value == "retype":
            row[known] = {"text": row[known]}


def _drift_csv(value: str, body: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(body.decode(), newline="")))
    title = rows[0].index("title")
    for place, row in enumerate(rows):
        if value == "extra":
            row.append("0.5" if place else "sentiment")
        elif value == "missing":
            del row[title]
        elif value == "rename" and not place:
            row[title] = "headline"
        elif value == "retype" and place:
            row[title] = f"[{row[title]!r}]"
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


FAULTS: Final[dict[str, str]] = {
    "storm": "429, not counted; value: Retry-After in seconds, `none` for no header (1)",
    "quota": "429 quota_exceeded, with the seconds to the reset",
    "error": "500 after a delay, at most the time limit; value: the delay in seconds (0)",
    "unavailable": "a plain-text response of a gateway; value: 502, 503 or 504 (503), "
    "or `service` for the service's own 503",
    "slow": "a delayed response, a 500 at the time limit; value: the delay in seconds (1)",
    "drop": "the connection breaks inside the body; value: the share sent (0.5)",
    "truncate": "the body ends early but cleanly; value: the share sent (0.5)",
    "empty": "200 with an empty body",
    "html": "200 with an HTML page instead of data",
    "repeat_cursor": "a page returns its own cursor (A to A)",
    "cycle_cursor": "a page returns the cursor before its own (A to B to A)",
    "duplicate_rows": "a page starts with the last row of the previous page",
    "shift_rows": "a page after the first omits its first row",
    "drift": "another schema; value: extra, missing, rename or retype (extra)",
    "push_twice": "a delivery is posted twice at the same time",
    "push_unanswered": "a delivery is posted, but counts as failed, so it is posted again later",
    "push_shuffled": "deliveries of one advance of the clock are sent in random order",
}
REQUEST_FAULTS: Final = frozenset(name for name in FAULTS if not name.startswith("push_"))
"""The faults of the responses to requests; the others are of deliveries to webhook endpoints."""

_DEFAULT_VALUE: Final = {
    "storm": "1",
    "error": "0",
    "unavailable": "503",
    "slow": "1",
    "drop": "0.5",
    "truncate": "0.5",
    "drift": "extra",
}
_FORM = re.compile(
    r"(?P<name>[a-z_]+)(=(?P<value>[a-z0-9.]+))?(\*(?P<times>[0-9]{1,9}))?"
    r"(@(?P<chance>[0-9.]+))?(~(?P<part>[^,]+))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    value: str = ""
    times: int | None = None
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
        names = ", ".join(FAULTS)
        raise ValueError(
            f"{text!r} is not a fault; write name[=value][*times][@chance], with one of {names}"
        )
    name = found["name"]
    value = found["value"] or _DEFAULT_VALUE.get(name, "")
    try:
        chance = float(found["chance"] or 1)
        in_bounds = 0 <= chance <= 1 and _value_in_bounds(name, value)
    except ValueError:
        in_bounds = False
    if not in_bounds:
        raise ValueError(f"{text!r}: the value of {name} is out of bounds: {FAULTS[name]}")
    times = None if found["times"] is None else int(found["times"])
    if times == 0:
        raise ValueError(f"{text!r} would affect no request; write *1 or more, or omit it")
    return Fault(name, value, times, chance, found["part"] or "")


def _value_in_bounds(name: str, value: str) -> bool:
    if name in ("drop", "truncate"):
        return 0 <= float(value) < 1
    if name in ("error", "slow"):
        return 0 <= float(value) <= 3600
    if name == "storm":
        return value == "none" or 0 <= float(value) <= 1e9
    if name == "unavailable":
        return value in ("502", "503", "504", "service")
    if name == "drift":
        return value in ("extra", "missing", "rename", "retype")
    return value == ""


class FaultBoard:
    """The faults that are on for every request. Thread-safe; `random` decides by probability."""

    def __init__(self, text: str = "", *, random: Callable[[], float] | None = None) -> None:
        self._lock = Lock()
        self._random = random or Random(0).random
        self._on: list[tuple[Fault, int | None]] = []
        self.set(text)

    def set(self, text: str) -> None:
        """Replace the faults that are on; empty text switches all off."""
        faults = parse_faults(text)
        with self._lock:
            self._on = [(fault, fault.times) for fault in faults]

    def clear(self) -> None:
        self.set("")

    def on(self) -> list[dict[str, object]]:
        """Return the faults that are on and how many times each is left."""
        with self._lock:
            return [
                {
                    "name": fault.name,
                    "value": fault.value,
                    "left": left,
                    "probability": fault.probability,
                    "path_part": fault.path_part,
                }
                for fault, left in self._on
            ]

    def draw(self, path: str, among: Container[str] = REQUEST_FAULTS) -> tuple[Fault, ...]:
        """Return which of the faults apply to this request or delivery, and count them down.

        `path` is the path of the request; for a delivery, the URL of the endpoint.
        """
        if not self._on:
            return ()
        with self._lock:
            drawn: list[Fault] = []
            still: list[tuple[Fault, int | None]] = []
            for fault, left in self._on:
                strikes = self._strikes(fault, path, among)
                if strikes:
                    drawn.append(fault)
                    left = None if left is None else left - 1
                if left is None or left > 0:
                    still.append((fault, left))
            self._on = still
            return tuple(drawn)

    def draw_from(self, faults: tuple[Fault, ...], path: str) -> tuple[Fault, ...]:
        """Return the faults of the request's own header that apply to it."""
        return tuple(fault for fault in faults if self._strikes(fault, path, REQUEST_FAULTS))

    def _strikes(self, fault: Fault, path: str, among: Container[str]) -> bool:
        if fault.name not in among or fault.path_part not in path:
            return False
        return fault.probability >= 1 or self._random() < fault.probability


_SCOPE_KEY = "almanac.sandbox.faults"
_HTML = b"<!doctype html><html><body><h1>We will be right back</h1></body></html>"
_INSTEAD = frozenset({"storm", "quota", "unavailable", "html", "empty"})
_IN_BODY = frozenset(TAMPERINGS) | {"drop", "truncate"}


def attach_faults(scope: Scope, faults: tuple[Fault, ...]) -> None:
    scope[_SCOPE_KEY] = {fault.name: fault for fault in faults}


class ConnectionBroken(ConnectionError):
    """The fault `drop`: raised inside the body to close the connection."""


def delayed(handler: Handler) -> Handler:
    """Return a handler with the faults of the routes: slowness, and errors after it.

    Within the gateway, so that they count, and the time limit covers them (interface section 7).
    """

    def answer(scope: Scope, exchange: Exchange) -> Awaitable[Reply]:
        if _SCOPE_KEY in scope:
            return answer_late(scope, exchange)
        return handler(scope, exchange)

    async def answer_late(scope: Scope, exchange: Exchange) -> Reply:
        faults: dict[str, Fault] = scope[_SCOPE_KEY]
        if "slow" in faults:
            await asyncio.sleep(faults["slow"].number)
        if "error" in faults:
            delay_s = faults["error"].number
            await asyncio.sleep(delay_s)
            raise errors.RequestTimeout() if delay_s else errors.InternalError()
        return await handler(scope, exchange)

    return answer


class FaultLayer:
    """ASGI layer of the other faults, around the whole server."""

    def __init__(self, app: ASGIApp, *, time_limit_s: float) -> None:
        self._app = app
        self._time_limit_s = time_limit_s
        self._memory = PageMemory()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _SCOPE_KEY in scope:
            return self._fail(scope, receive, send)
        return self._app(scope, receive, send)

    async def _fail(self, scope: Scope, receive: Receive, send: Send) -> None:
        faults: dict[str, Fault] = scope[_SCOPE_KEY]
        if faults.keys() & _INSTEAD:
            status, headers, body = await self._instead(scope, faults)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        elif faults.keys() & _IN_BODY:
            await self._inside(scope, receive, send, faults)
        else:
            await self._app(scope, receive, send)

    async def _instead(
        self, scope: Scope, faults: dict[str, Fault]
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        if "slow" in faults:
            delay_s = faults["slow"].number
            await asyncio.sleep(min(delay_s, self._time_limit_s))
            if delay_s > self._time_limit_s:
                return _error(errors.RequestTimeout(), scope)
        if "storm" in faults:
            value = faults["storm"].value
            wait = {} if value == "none" else {"Retry-After": value}
            return _error(errors.RateLimited(headers=wait), scope)
        if "quota" in faults:
            now = get_exchange(scope).now
            wait_s = int((quota_period(now).end - now).total_seconds()) + 1
            return _error(errors.QuotaExceeded(headers={"Retry-After": str(wait_s)}), scope)
        if "unavailable" in faults:
            value = faults["unavailable"].value
            if value == "service":
                return _error(errors.ServiceUnavailable(), scope)
            return int(value), [_type(b"text/plain")], b"upstream unavailable"
        if "html" in faults:
            return 200, [_type(b"text/html")], _HTML
        return 200, [_type(b"application/json")], b""

    async def _inside(
        self, scope: Scope, receive: Receive, send: Send, faults: dict[str, Fault]
    ) -> None:
        start, body = await self._answer(scope, receive)
        if start["status"] == 200:
            for name in TAMPERINGS:
                if name in faults:
                    body = self._memory.tamper(name, faults[name].value, scope, body)
        headers = [
            (k, v) for k, v in start["headers"] if k.lower() not in (b"content-length", b"etag")
        ]
        cut = len(body)
        for name in ("drop", "truncate"):
            if name in faults:
                cut = int(len(body) * faults[name].number)
        if "drop" in faults:
            headers.append((b"content-length", str(len(body)).encode()))
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": body[:cut], "more_body": True})
        if "drop" in faults:
            # Without a pause the bytes sent may be lost with the connection.
            await asyncio.sleep(0.01)
            raise ConnectionBroken("connection broken on purpose")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Message, bytes]:
        """Run the server and return its whole response, uncompressed."""
        plain = [(k, v) for k, v in scope["headers"] if k != b"accept-encoding"]
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)

        await self._app({**scope, "headers": plain}, receive, hold)
        return messages[0], b"".join(message.get("body", b"") for message in messages[1:])


def _error(error: errors.ApiError, scope: Scope) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    answer = error_answer(error, scope)
    return error.status, list(answer.raw_headers), bytes(answer.body)


def _type(media_type: bytes) -> tuple[bytes, bytes]:
    return b"content-type", media_type
