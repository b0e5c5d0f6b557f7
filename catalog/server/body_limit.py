"""Limits size and time of every request body, for all routes."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.contract import errors
from catalog.server.responses import METHODS, error_response

BODY_MAX: Final = 1_048_576
BODY_WITHIN_S: Final = 10.0
BODIES_MAX: Final = 256
"""Bodies that are received at the same time; a new one ends the oldest, which is the slowest."""


@dataclass(eq=False, repr=False, kw_only=True)
class BodyReader:
    """Reads whole bodies, each within a size and a time."""

    body_max: int = BODY_MAX
    within_s: float = BODY_WITHIN_S
    bodies_max: int = BODIES_MAX

    def __post_init__(self) -> None:
        self._reading: dict[asyncio.Timeout, None] = {}
        """The time limits of the bodies that are being received, the oldest first."""

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body.

        Raises:
            BodyTooLarge, BodyTooSlow: it is over a limit.
            ClientDisconnect: the client left.
        """
        request = Request(scope, receive)
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.body_max:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self.within_s) as limit:
                if len(self._reading) >= self.bodies_max:
                    oldest = next(iter(self._reading))
                    del self._reading[oldest]
                    if not oldest.expired():
                        oldest.reschedule(0)
                self._reading[limit] = None
                try:
                    async for chunk in request.stream():
                        body += chunk
                        if len(body) > self.body_max:
                            raise self._too_large()
                finally:
                    self._reading.pop(limit, None)
        except TimeoutError:
            raise errors.BodyTooSlow(
                f"The body was not complete within {self.within_s:g} s",
                headers={"Connection": "close"},
            ) from None
        return bytes(body)

    def _too_large(self) -> errors.BodyTooLarge:
        return errors.BodyTooLarge(
            f"The body is larger than {self.body_max:,} bytes", headers={"Connection": "close"}
        )


@dataclass(eq=False, repr=False)
class BodyLimit:
    """Middleware that reads the body before the application is called, and refuses it over a limit.

    The bodies of GET and HEAD requests are ignored.
    """

    app: ASGIApp
    reader: BodyReader = field(default_factory=BodyReader)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in METHODS:
            await self.app(scope, receive, send)
            return
        try:
            body = await self.reader.read(scope, receive)
        except (errors.BodyTooLarge, errors.BodyTooSlow) as error:
            await error_response(error, scope)(scope, receive, send)
            return
        is_sent = False

        async def receive_read() -> Message:
            nonlocal is_sent
            if is_sent:
                return await receive()
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_read, send)
