"""The pages in front of the interface: their routes, who may read them, and their headers."""

import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from almanac.core.errors import AlmanacError
from almanac.core.text import cut_line, plain_line
from almanac.database import Database, open_database
from almanac.reader import Reader
from almanac.reading.query_limits import QueryLimits
from application.web import changes_page, upcoming_page
from application.web.calendar_routes import FEED_PATH, CalendarRoutes
from application.web.changes_page import show_changes
from application.web.coin_page import (
    COIN_PARAMETERS,
    COINS_PARAMETERS,
    show_coin,
    show_coins,
    show_search,
)
from application.web.coin_prices import CoinPrices, read_coin_prices
from application.web.event_page import show_event
from application.web.mcp_route import MCP_PATH, McpRoute
from application.web.mirror.as_of import refuse_misspelt_header
from application.web.mirror.mirror import SiteContext
from application.web.pages import NAVIGATION, PageProblem, Pages, read_static, render_problem
from application.web.quality_page import HomeWatch, quality_page
from application.web.upcoming_page import show_upcoming
from catalog.contract.errors import ApiError
from catalog.contract.parameters import AS_OF_HEADER
from catalog.server.accounts import Grant
from catalog.server.middleware import check_sizes, read_presented_keys
from catalog.server.responses import error_response
from pipeline.health.facts import Health

log = logging.getLogger(__name__)
_LOOKS_EVERY_S: Final = 0.5
_LIMITS: Final = QueryLimits(memory_bytes=1_000_000_000, timeout_s=10.0)
_STATIC: Final = {"site.css": "text/css", "site.js": "text/javascript", "icon.svg": "image/svg+xml"}
_PAGE_PATHS: Final = frozenset(path for path, _ in NAVIGATION if path != "/")
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"private, no-cache"),
    (b"vary", AS_OF_HEADER.name.encode()),
)


class WebSite:
    """The pages of a warehouse. A later publication is shown when its tables are prepared, so that
    no visitor waits for them.

    `read_health` returns the health of the home now; without it the file alone is known. `prices`
    is a file of prices for the pages of coins, read once.
    """

    def __init__(
        self,
        place: SiteContext,
        *,
        read_health: Callable[[], Health] | None = None,
        prices: Path | None = None,
    ) -> None:
        self._place = place
        self._watch = HomeWatch(read_health)
        self._database = open_database(
            place.warehouse,
            clock=place.now,
            limits=_LIMITS,
            trust_clock=place.is_replay,
            follow=False,
        )
        reader = self._database.reader
        self._prices = None if prices is None else read_coin_prices(prices, reader)
        self._calendar = CalendarRoutes(self._database, place, self._key_grant)
        self._mcp = McpRoute(place)
        self._is_closing = Event()
        self._follower = Thread(target=self._follow, name="publications", daemon=True)
        self._follower.start()

    def close(self) -> None:
        self._is_closing.set()
        self._follower.join()
        self._mcp.close()
        self._database.close()

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return a layer that answers the paths of the pages, and passes on all others."""
        found = [
            *page_routes(self._database, self._watch, self._place.base_path, self._prices),
            *self._calendar.routes(),
            *self._mcp.routes(),
        ]
        routes = [*map(self._guarded, found), *self._mcp.missing_routes()]
        default = _BrowserLayer(app, self._place.base_path)
        return Router(routes, default=default, redirect_slashes=False)

    def _follow(self) -> None:
        """Prepare the tables of the pages, now and for each later publication before it is shown.

        A publication that can't be read is not tried again; the one before it stays.
        """
        tried = None
        self._prepare(self._database.reader)
        while not self._is_closing.wait(_LOOKS_EVERY_S):
            try:
                newer = self._database.reader.newer
                if newer is None or newer == tried:
                    continue
                tried = newer
                self._database.reader.renew(self._prepare)
            except AlmanacError as error:
                log.error("the new publication is not shown: %s", plain_line(str(error)))
            except Exception:  # The thread goes on, or no later publication would be shown.
                log.exception("the new publication is not shown")

    def _prepare(self, reader: Reader) -> None:
        pages = Pages(Database(reader))
        for show in (show_upcoming, show_changes, show_coins):
            try:
                with reader.pinned():
                    show(pages.read_request("/", {}))
            except AlmanacError as error:  # The page tells a visitor, too.
                log.info("a page could not be prepared: %s", plain_line(str(error)))
            except Exception:  # A defect of one page; it answers 500, the others are prepared.
                log.exception("a page could not be prepared")

    def _guarded(self, route: BaseRoute) -> BaseRoute:
        assert isinstance(route, Route)
        route.app = _KeyLayer(route.app, self._place, self._find_grant)
        return route

    def _key_grant(self, scope: Scope) -> Grant | None:
        return find_grant(scope, self._place.keys.resolve_grant)

    def _find_grant(self, scope: Scope) -> Grant | None:
        return self._key_grant(scope) or self._calendar.find_grant(scope)


def page_routes(
    database: Database,
    watch: HomeWatch | None = None,
    base_path: str = "",
    prices: CoinPrices | None = None,
) -> list[BaseRoute]:
    """Return the routes of the pages over a database."""
    pages = Pages(database, base_path)
    return [
        Route("/", pages.endpoint(show_upcoming, parameters=upcoming_page.PARAMETERS)),
        Route("/event/{event_id:path}", pages.endpoint(show_event)),
        Route("/coins", pages.endpoint(show_coins, parameters=COINS_PARAMETERS)),
        Route(
            "/coin/{slug:path}",
            pages.endpoint(partial(show_coin, prices=prices), parameters=COIN_PARAMETERS),
        ),
        Route("/search", pages.endpoint(show_search, parameters=("q", "coins"))),
        Route("/changes", pages.endpoint(show_changes, parameters=changes_page.PARAMETERS)),
        Route(
            changes_page.FEED_PATH,
            pages.endpoint(show_changes, parameters=changes_page.FEED_PARAMETERS),
        ),
        Route(
            "/quality",
            pages.endpoint(
                quality_page(watch or HomeWatch(None)), parameters=("format",), needs_pull=False
            ),
        ),
        Route("/static/{name}", get_static),
    ]


def get_static(request: Request) -> Response:
    """Serve a static file of the package; an address with the mark of its content never changes."""
    name = request.path_params["name"]
    if name not in _STATIC:
        return PlainTextResponse("No such file\n", status_code=404)
    body, mark = read_static(name)
    is_marked = request.query_params.get("v") == mark
    kept = {"cache-control": "private, max-age=31536000, immutable"} if is_marked else {}
    return Response(body, media_type=_STATIC[name], headers=kept)


@dataclass(eq=False, repr=False)
class _BrowserLayer:
    """Answers a browser with a page where the interface answers 404: an error page, or a redirect
    without the slash.

    Only a request that accepts HTML is from a browser. Below `/v1` and `/v2`, and where the
    interface answers with another status than 404, its answer stays.
    """

    app: ASGIApp
    base_path: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_for_a_page(scope):
            await self.app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        if path != scope["path"] and path in _PAGE_PATHS:
            query = scope["query_string"].decode("latin-1")
            address = self.base_path + path + (f"?{query}" if query else "")
            page: Response = RedirectResponse(address, 308)
            await page(scope, receive, send)
            return
        is_missing = False

        async def send_unless_missing(message: Message) -> None:
            nonlocal is_missing
            if message["type"] == "http.response.start":
                is_missing = message["status"] == 404
            if not is_missing:
                await send(message)

        await self.app(scope, receive, send_unless_missing)
        if is_missing:
            reason = f"No page has the address {cut_line(scope['path'], 200)}."
            problem = PageProblem("Page not found", reason, 404)
            page = render_problem(None, problem, self.base_path)
            page.headers.update({name.decode(): value.decode() for name, value in _HEADERS})
            await page(scope, receive, send)


def _is_for_a_page(scope: Scope) -> bool:
    """Whether a browser asks for a page: the request accepts HTML, and is not for the interface."""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    if scope["path"].split("/")[1:2] in (["v1"], ["v2"]):
        return False
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"text/html" in accepted.lower()


@dataclass(eq=False, repr=False)
class _KeyLayer:
    """Adds the headers of the pages; off loopback it asks for a key that shows every field.

    A browser or a calendar program sends the key as the password of HTTP Basic authentication.
    """

    app: ASGIApp
    place: SiteContext
    find_grant: Callable[[Scope], Grant | None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in _HEADERS if name not in have]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            check_sizes(scope)
            refuse_misspelt_header(scope)
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send_with_headers)
            return
        # The header X-As-Of equals the parameter. A request with both is refused.
        times = Headers(scope=scope).getlist(AS_OF_HEADER.name)
        asked = (urlencode({"as_of": time}).encode() for time in times)
        scope["query_string"] = b"&".join((scope["query_string"], *asked))
        grant = self.find_grant(scope)
        scope["plan"] = None if grant is None or self.place.is_replay else grant.plan.name
        refusal = self._refusal(scope, grant) if self.place.needs_key else None
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, grant: Grant | None) -> Response | None:
        if grant is not None and grant.plan.export:
            return None
        if grant is not None:
            return PlainTextResponse(
                f"The pages show every field, and the plan {grant.plan.name} hides some. Use a key "
                "of the plan elite or enterprise, or /v2 with this key.\n",
                status_code=403,
            )
        asked = 'Basic realm="Almanac", charset="UTF-8"'
        reason = "This page needs a key of this server, as the password; the name does not count."
        if scope["path"].rstrip("/") == MCP_PATH:
            asked = 'Bearer realm="Almanac"'
            reason = "MCP needs a key of this server: Authorization: Bearer KEY, or x-api-key: KEY."
        elif scope["path"] == FEED_PATH and b"token=" in scope["query_string"]:
            reason = (
                "The token of this address is wrong, or its key was revoked. The page /calendar "
            )
            reason += "shows a new address to a caller with a key."
        return PlainTextResponse(f"{reason}\n", 401, {"www-authenticate": asked})


def find_grant(scope: Scope, resolve_grant: Callable[[set[str]], Grant | None]) -> Grant | None:
    """Return the grant of the key in `x-api-key`, `Authorization: Bearer`, or a Basic password."""
    keys = read_presented_keys(scope)
    for name, value in scope["headers"]:
        scheme, _, text = value.decode("latin-1").strip().partition(" ")
        if name == b"authorization" and scheme.lower() == "basic":
            try:
                keys.add(b64decode(text, validate=True).decode("utf-8").partition(":")[2])
            except (NotBase64, ValueError):
                return None
    return resolve_grant(keys)
