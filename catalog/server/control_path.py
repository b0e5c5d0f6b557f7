"""A control path: orders as JSON, from programs on this machine only.

It answers loopback under a loopback name, so that a web page can't use it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from catalog.contract import errors
from catalog.server.exchange import error_answer
from catalog.server.request_guard import find_refusal, is_loopback

_BODY_BYTES_MAX: Final = 65_536
_BODY_WITHIN_S: Final = 5.0
_FORWARDED: Final = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}
)
"""Headers of a proxy on this machine, whose client may be elsewhere."""
_DAY_LENGTH: Final = len("2026-01-01")


async def answer_order(
    scope: Scope, receive: Receive, send: Send, run: Callable[[bytes], Awaitable[Any]]
) -> None:
    """Answer with what `run` returns for the body, or with the ApiError that it raises.

    The scope has an Exchange already.
    """
    try:
        _refuse_others(scope)
        answer = await run(await _read_body(receive))
    except errors.ApiError as error:
        await error_answer(error, scope)(scope, receive, send)
        return
    body = msgspec.json.encode(answer)
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def decode_order(body: bytes, kind: type[Any]) -> Any:
    """Return the order in a body.

    Raises:
        InvalidParameter: the body is not such an order.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.InvalidParameter(f"the body is not valid: {error}") from error


def read_instant(text: str) -> datetime:
    """Return a time of an order; a date is its midnight.

    Raises:
        ValueError: it is not an ISO 8601 time.
    """
    text = text.strip()
    read = datetime.fromisoformat(text)
    return read.replace(tzinfo=UTC) if len(text) == _DAY_LENGTH else read


def _refuse_others(scope: Scope) -> None:
    client = scope.get("client")
    refusal = find_refusal(scope)
    forwarded = any(name in _FORWARDED for name, _ in scope["headers"])
    if client is None or not is_loopback(client[0]) or refusal is not None or forwarded:
        why = "" if refusal is None else f": {refusal.message}"
        raise errors.Forbidden(f"The control path accepts requests from this machine only{why}")


async def _read_body(receive: Receive) -> bytes:
    """Read the whole body; a body that is late must not hold its connection."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            while True:
                message = await receive()
                body += bytes(message.get("body", b""))
                if len(body) > _BODY_BYTES_MAX:
                    raise errors.InvalidParameter(
                        f"the body is larger than {_BODY_BYTES_MAX} bytes"
                    )
                if not message.get("more_body"):
                    return body
    except TimeoutError as error:
        raise errors.InvalidParameter(
            f"the body was not complete within {_BODY_WITHIN_S:g} s"
        ) from error
