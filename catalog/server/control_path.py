"""A control path: orders as JSON, from programs on this machine only.

It answers loopback under a loopback name, so that the page of another site can't use it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.contract import errors
from catalog.contract.parameters import AS_OF
from catalog.server.request_guard import find_refusal, is_loopback
from catalog.server.responses import error_response

_FORWARDED: Final = {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"}
"""Headers of a proxy on this machine, whose client may be elsewhere."""
CLOCK_TIME: Final = replace(AS_OF, name="now")
"""The time in an order to a clock: a day, or a time in UTC."""


@dataclass(eq=False, repr=False)
class ControlPath:
    """Middleware that answers the paths below `prefix`.

    `run` gets the method, the rest of the path and the body, and returns the answer or raises an
    ApiError. Pages of `origins` may send orders, too.
    """

    app: ASGIApp
    prefix: str
    run: Callable[[str, str, bytes], Any]
    origins: Collection[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(self.prefix):
            await self.app(scope, receive, send)
            return
        try:
            response = await self._answer(Request(scope, receive))
        except errors.ApiError as error:
            response = error_response(error, scope)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        client, refusal = request.client, find_refusal(request.scope, self.origins)
        forwarded = not _FORWARDED.isdisjoint(request.headers.keys())
        if client is None or not is_loopback(client.host) or refusal is not None or forwarded:
            raise errors.Forbidden("The control path accepts requests from this machine only")
        body = b"" if request.method == "GET" else await request.body()
        path = request.scope["path"].removeprefix(self.prefix)
        answer = await run_in_threadpool(self.run, request.method, path, body)
        headers = {"Cache-Control": "no-store"}
        return Response(msgspec.json.encode(answer), media_type="application/json", headers=headers)


def decode_order(body: bytes, kind: type[Any]) -> Any:
    """Return the order in a body. Raises InvalidParameter: the body is not such an order."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.InvalidParameter(f"the body is not valid: {error}") from error
