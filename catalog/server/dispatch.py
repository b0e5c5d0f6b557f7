"""From a path to its handler, and gzip for those who ask for it."""

from collections.abc import Sequence

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

_GZIP_LEVEL = 5
_GZIP_FROM_BYTES = 1_000


class Dispatcher:
    """Looks the path of a GET up in two dicts; the router sees to all else.

    The router tries one pattern after the other, which costs as much as a small answer.
    """

    def __init__(self, router: Router, routes: Sequence[Route]) -> None:
        self._router = router
        self._exact = {route.path: route.endpoint for route in routes if "{" not in route.path}
        # `/v2/events/{id}`: by what stands before the last slash, with the parameter's name.
        self._below = {
            route.path.rpartition("/")[0]: (route.endpoint, route.path.rpartition("{")[2][:-1])
            for route in routes
            if "{" in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            path: str = scope["path"]
            handler = self._exact.get(path)
            if handler is None:
                above, _, value = path.rpartition("/")
                below = self._below.get(above)
                if below is not None and value:
                    handler, name = below
                    scope["path_params"] = {name: value}
            if handler is not None:
                response = await handler(Request(scope, receive))
                await response(scope, receive, send)
                return
        # Inside an application the router raises its 404 and 405, which the gateway words.
        scope.setdefault("app", self._router)
        await self._router(scope, receive, send)


class GzipWhereAsked:
    """Compresses for requests that say they accept it; the others pass untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and any(
            name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"]
        )
        await (self._gzip if asked else self._plain)(scope, receive, send)
