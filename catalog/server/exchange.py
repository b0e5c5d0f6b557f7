"""The state of one request in all layers, and the form of its response.

Belongs here: the key and time of a request and its name in the metrics; JSON with an ETag; the
form of errors. Does not: the content of a response (routes).
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from functools import lru_cache

import msgspec
from msgspec import Raw
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from catalog.contract.errors import ApiError
from catalog.contract.plans import Plan
from catalog.contract.records import Record
from catalog.server.accounts import Grant

_SCOPE_KEY = "almanac.exchange"


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


@dataclass(slots=True)
class Exchange:
    """The state of a request. The outermost layer makes it; the gateway sets the grant."""

    now: datetime
    """The service's time, the same for the whole request."""
    grant: Grant | None = None
    route: str = "other"
    request_id: str = field(default_factory=new_request_id)
    """Names the request in the body of an error and in the server's log."""

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


def http_date(scope: Scope) -> str:
    """Return the service's time in the form of the Date header."""
    return _http_date(int(get_exchange(scope).now.timestamp()))


@lru_cache(maxsize=1_024)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def dated(scope: Scope, send: Send, more: Sequence[tuple[bytes, bytes]] = ()) -> Send:
    """Return a send that adds the service's Date and other headers to the response."""
    headers = [(b"date", http_date(scope).encode()), *more]

    async def send_dated(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return send_dated


def json_answer(scope: Scope, body: Record | Raw, *, max_age_s: int | None) -> Response:
    """Return a 200 with the record, or a 304 when the client has it already.

    `max_age_s` None is for answers that must not be cached.
    """
    data = _encode(body)
    if max_age_s is None:
        return Response(data, media_type="application/json", headers={"Cache-Control": "no-store"})
    headers = {
        # Weak, since gzip changes the bytes and not the meaning.
        "ETag": f'W/"{hashlib.sha256(data).hexdigest()[:24]}"',
        "Cache-Control": f"private, max-age={max_age_s}",
        "Vary": VARY,
    }
    if client_has(scope, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(data, media_type="application/json", headers=headers)


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
