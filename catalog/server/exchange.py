"""The state of one request in all layers, and the form of its response."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from functools import lru_cache
from typing import NamedTuple

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from catalog.contract.errors import ApiError
from catalog.contract.plans import Plan
from catalog.contract.records import PaginationMeta, Record
from catalog.server.accounts import Grant

_SCOPE_KEY = "almanac.exchange"
Header = tuple[bytes, bytes]


@dataclass(slots=True)
class Exchange:
    """The state of a request. The outermost layer makes it; the gateway sets the grant."""

    now: datetime
    """The service's time, the same for the whole request."""
    grant: Grant | None = None
    route: str = "other"
    name: str = ""
    """The last part of the path, where a route takes it as a parameter."""
    as_of: datetime | None = None
    """The time of knowledge that the request names: an extension of the mirror."""
    _request_id: str = field(default="", init=False)

    @property
    def request_id(self) -> str:
        """Return the name of the request in an error and in the server's log."""
        # Made when it is needed first: most requests have no error.
        self._request_id = self._request_id or f"req_{secrets.token_hex(12)}"
        return self._request_id

    @property
    def moment(self) -> datetime:
        """Return the time for which the catalog is shown: the requested one, or now."""
        return self.as_of or self.now

    @property
    def plan(self) -> Plan:
        if self.grant is None:
            raise LookupError("no grant: this route is open and has no plan")
        return self.grant.plan


def attach(scope: Scope, exchange: Exchange) -> None:
    scope[_SCOPE_KEY] = exchange


def get_exchange(scope: Scope) -> Exchange:
    exchange: Exchange = scope[_SCOPE_KEY]
    return exchange


VARY = "x-api-key, Authorization, Accept-Encoding"
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1_024)
def _date_header(seconds: int) -> Header:
    return b"date", formatdate(seconds, usegmt=True).encode()


def dated(scope: Scope, send: Send, more: Sequence[Header] = ()) -> Send:
    """Return a send that adds the service's Date and other headers to the response."""
    date = _date_header(int(get_exchange(scope).now.timestamp()))

    def send_dated(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], date, *more]
        return send(message)

    return send_dated


class EncodedJson(NamedTuple):
    """A record as JSON, and a digest that identifies it."""

    json: bytes
    digest: bytes

    @classmethod
    def of(cls, record: Record) -> "EncodedJson":
        data = _encode(record)
        return cls(data, _digest(data))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=12).digest()


class JsonAnswer:
    """A response with prepared headers; Starlette's encodes and checks all headers each time."""

    __slots__ = ("_body", "raw_headers", "status_code")

    def __init__(self, status: int, headers: list[Header], body: bytes = b"") -> None:
        self.status_code = status
        self.raw_headers = headers
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": self._body})


Reply = Response | JsonAnswer
Handler = Callable[[Scope, Exchange], Awaitable[Reply]]
"""Answers a request. A handler may wrap another one; the layers around them are ASGI."""

_JSON: Header = (b"content-type", b"application/json")
_NO_STORE: Header = (b"cache-control", b"no-store")
_VARY: Header = (b"vary", VARY.encode())


def page_answer(
    scope: Scope, rows: Sequence[EncodedJson], meta: PaginationMeta, *, max_age_s: int
) -> JsonAnswer:
    """Return the page of these rows, or a 304 when the client has it already."""
    ending = _encode(meta)
    bodies, digests = zip(*rows, strict=True) if rows else ((), ())
    body = b'{"data":[%b],"meta":%b}' % (b",".join(bodies), ending)
    # Equal rows and an equal ending are an equal body, and much shorter to hash.
    digest = _digest(b"".join(digests) + ending)
    return tagged_answer(scope, EncodedJson(body, digest), max_age_s=max_age_s)


def json_answer(scope: Scope, record: Record, *, max_age_s: int | None) -> JsonAnswer:
    """Return the record, or a 304 when the client has it already.

    `max_age_s` None is for answers that must not be cached.
    """
    if max_age_s is not None:
        return tagged_answer(scope, EncodedJson.of(record), max_age_s=max_age_s)
    data = _encode(record)
    return JsonAnswer(200, [_NO_STORE, (b"content-length", b"%d" % len(data)), _JSON], data)


def tagged_answer(scope: Scope, body: EncodedJson, *, max_age_s: int) -> JsonAnswer:
    """Return the body with its tag, or a 304 when the client has it already."""
    # Weak, since gzip changes the bytes and not the meaning.
    tag = f'W/"{body.digest.hex()}"'
    headers = [(b"etag", tag.encode()), _max_age_header(max_age_s), _VARY]
    if client_has(scope, tag):
        return JsonAnswer(304, headers)
    headers += [(b"content-length", b"%d" % len(body.json)), _JSON]
    return JsonAnswer(200, headers, body.json)


@lru_cache
def _max_age_header(seconds: int) -> Header:
    return b"cache-control", f"private, max-age={seconds}".encode()


def client_has(scope: Scope, etag: str) -> bool:
    """Whether If-None-Match names this tag, by weak comparison."""
    for name, _ in scope["headers"]:
        if name == b"if-none-match":
            values = Headers(scope=scope).getlist("if-none-match")
            tags = {tag.strip().removeprefix("W/") for line in values for tag in line.split(",")}
            return "*" in tags or etag.removeprefix("W/") in tags
    return False


def error_answer(error: ApiError, scope: Scope) -> Response:
    return Response(
        error.body(get_exchange(scope).request_id),
        status_code=error.status,
        media_type="application/json",
        headers={"Cache-Control": "no-store", **error.headers},
    )
