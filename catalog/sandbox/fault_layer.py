"""Lets the drawn faults strike a request: instead of its answer, before it, or inside it."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import errors
from catalog.sandbox import tampering
from catalog.sandbox.faults import Fault
from catalog.server.answers import error_answer
from catalog.server.exchange import exchange_of
from catalog.server.usage import quota_period

_SCOPE_KEY = "almanac.sandbox.faults"
_HTML = b"<!doctype html><html><body><h1>We will be right back</h1></body></html>"
_IN_BODY = frozenset(tampering.TAMPERINGS) | {"drop", "truncate"}


def attach_faults(scope: Scope, faults: tuple[Fault, ...]) -> None:
    scope[_SCOPE_KEY] = {fault.name: fault for fault in faults}


class BrokenOff(ConnectionError):
    """The fault `drop`: raised inside the body so that the connection closes."""


class FaultLayer:
    """ASGI layer around the whole server, for paths of the interface alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._memory = tampering.PageMemory()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        faults: dict[str, Fault] = scope.get(_SCOPE_KEY, {})
        if not faults:
            await self._app(scope, receive, send)
            return
        if "slow" in faults:
            await asyncio.sleep(faults["slow"].number)
        instead = await self._instead(scope, faults)
        if instead is not None:
            status, headers, body = instead
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        elif faults.keys() & _IN_BODY:
            await self._inside(scope, receive, send, faults)
        else:
            await self._app(scope, receive, send)

    async def _instead(
        self, scope: Scope, faults: dict[str, Fault]
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        if "storm" in faults:
            value = faults["storm"].value
            wait = {} if value == "none" else {"Retry-After": value}
            return _error(errors.RateLimited(headers=wait))
        if "quota" in faults:
            now = exchange_of(scope).now
            wait_s = int((quota_period(now).end - now).total_seconds()) + 1
            return _error(errors.QuotaExceeded(headers={"Retry-After": str(wait_s)}))
        if "error" in faults:
            await asyncio.sleep(faults["error"].number)
            return _error(
                errors.RequestTimeout() if faults["error"].number else errors.InternalError()
            )
        if "unavailable" in faults:
            return int(faults["unavailable"].value), [_type(b"text/plain")], b"upstream unavailable"
        if "html" in faults:
            return 200, [_type(b"text/html")], _HTML
        if "empty" in faults:
            return 200, [_type(b"application/json")], b""
        return None

    async def _inside(
        self, scope: Scope, receive: Receive, send: Send, faults: dict[str, Fault]
    ) -> None:
        start, body = await self._answer(scope, receive)
        if start["status"] == 200:
            for name in tampering.TAMPERINGS:
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
            raise BrokenOff("broken off on purpose")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Message, bytes]:
        """Run the server and hold its whole answer, uncompressed."""
        plain = [(k, v) for k, v in scope["headers"] if k != b"accept-encoding"]
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)

        await self._app({**scope, "headers": plain}, receive, hold)
        return messages[0], b"".join(message.get("body", b"") for message in messages[1:])


def _error(error: errors.ApiError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    answer = error_answer(error)
    return error.status, list(answer.raw_headers), bytes(answer.body)


def _type(media_type: bytes) -> tuple[bytes, bytes]:
    return b"content-type", media_type
