"""The calendar feed `/calendar.ics`, and the page `/calendar` that builds its address.

Google Calendar and Outlook.com can't send a key. For them a feed has a secret address: its token
is made from the key's hash and the secret of the server's folder. The token can read only the
calendar, and becomes invalid with the key. Nothing logs it.
"""

import hmac
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from threading import BoundedSemaphore
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from almanac.calendar.feed import (
    CANCELLED,
    ESTIMATED,
    LIMIT,
    Feed,
    FeedQuery,
    default_start,
    find_categories,
    find_knowledge,
    write_feed,
)
from almanac.database import Database
from almanac.errors import (
    AlmanacError,
    AmbiguousCoin,
    InvalidArgument,
    QueryRefused,
    UnknownName,
    WarehouseError,
)
from almanac.events import read_known_at
from application.web.mirror.mirror import SiteContext
from application.web.pages import Pages, SiteRequest, render
from catalog.server.accounts import Grant
from catalog.server.request_guard import is_loopback
from catalog.server.responses import is_not_modified, make_etag

log = logging.getLogger(__name__)
FEED_PATH: Final = "/calendar.ics"
PAGE_PATH: Final = "/calendar"
_LISTS: Final = ("coins", "categories", "event")
_SINGLE: Final = ("impact", "estimated", "cancelled", "from", "to", "as_of", "limit", "token")
_WRONG: Final = (InvalidArgument, UnknownName, AmbiguousCoin)
_DIGITS_MAX: Final = 9
_MAKING_WAIT_S: Final = 20.0
_PURPOSE: Final = b"calendar feed\0"


class CalendarRoutes:
    """The routes of the calendar. `key_grant` returns the grant of a request's key."""

    def __init__(
        self, database: Database, place: SiteContext, key_grant: Callable[[Scope], Grant | None]
    ) -> None:
        self._database = database
        self._pages = Pages(database)
        self._place = place
        self._key_grant = key_grant
        self._making = BoundedSemaphore(1)

    def routes(self) -> list[BaseRoute]:
        return [Route(FEED_PATH, self.get_feed), Route(PAGE_PATH, self.get_page)]

    def find_grant(self, scope: Scope) -> Grant | None:
        """Return the grant of the key whose token is in the address of a feed."""
        if scope["path"] != FEED_PATH:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if len(given) != 1:
            return None
        found = None
        for grant in self._place.keys.usable_grants():
            if hmac.compare_digest(self._token(grant).encode(), given[0].encode()):
                found = grant
        return found

    def _token(self, grant: Grant) -> str:
        digest = hmac.digest(self._place.secret, _PURPOSE + grant.sha256.encode(), "sha256")
        return urlsafe_b64encode(digest).decode().rstrip("=")

    def get_feed(self, request: Request) -> Response:
        """Return the feed of the address; Starlette calls it on a thread."""
        try:
            query = read_query(request.query_params)
            headers, modified = self._head(query)
            if is_not_modified(request, headers["etag"], modified):
                return Response(status_code=304, headers=headers)
            feed = self._make_feed(query)
        except _WRONG as error:
            return PlainTextResponse(f"{_explain(error)}\n", status_code=400)
        except QueryRefused as error:
            return PlainTextResponse(f"{error}\n", status_code=422)
        except AlmanacError as error:
            headers = {"retry-after": "10"}
            return PlainTextResponse(f"{error}\n", status_code=503, headers=headers)
        if feed.is_truncated:
            counts = f"{feed.events} of {feed.total} events"
            log.warning("a calendar has %s; the others are left out", counts)
            headers["x-truncated"] = counts
        headers["content-type"] = "text/calendar; charset=utf-8"
        headers["content-disposition"] = 'inline; filename="almanac.ics"'
        return Response(feed.content, headers=headers)

    def _head(self, query: FeedQuery) -> tuple[dict[str, str], datetime]:
        """Return the headers of a feed without making it, and the time of its last change.

        It follows from the publication, the knowledge, the day of its start, and the query.
        """
        reader = self._database.reader
        with reader.pinned():
            at = read_known_at(reader, query.as_of, "as_of")
            publication = reader.publication()
            known = find_knowledge(reader, at)
        content = (publication.id, known, default_start(at), query)
        day = at.replace(hour=0, minute=0, second=0, microsecond=0)
        modified = min(reader.clock(), max(publication.published_at, day)).astimezone(UTC)
        modified = modified.replace(microsecond=0)
        headers = {
            "etag": make_etag(repr(content).encode()),
            "last-modified": format_datetime(modified, usegmt=True),
            "cache-control": "private, no-cache",
        }
        return headers, modified

    def _make_feed(self, query: FeedQuery) -> Feed:
        """Return a feed. One at a time: a large feed takes seconds, and much memory."""
        if not self._making.acquire(timeout=_MAKING_WAIT_S):
            raise WarehouseError("Other calendars are being made. Ask again in a few seconds.")
        try:
            return write_feed(self._database, query)
        finally:
            self._making.release()

    def get_page(self, request: Request) -> Response:
        """Return the page that builds the address of a feed."""

        def show(page: SiteRequest) -> str:
            return self._show(page, request)

        return self._pages.endpoint(show, parameters=(*_LISTS, *_SINGLE))(request)

    def _show(self, page: SiteRequest, request: Request) -> str:
        given = {name: page.text(name) for name in (*_LISTS, *_SINGLE) if name != "token"}
        chosen = {name: value for name, value in given.items() if value is not None}
        found, left_out, problem = 0, 0, None
        try:
            query = read_query(QueryParams(chosen))
            # With the rows of one event, since the page shows only their number.
            found = write_feed(self._database, replace(query, limit=1)).total
            left_out = max(0, found - query.limit)
        except _WRONG as error:
            problem = _explain(error)
        address = self._address(request, chosen)
        return render(
            "calendar.html",
            page,
            title="Calendar",
            given=given,
            problem=problem,
            total=found,
            left_out=left_out,
            address=address,
            webcal=f"webcal:{address.partition(':')[2]}",
            has_token=self._grant(request) is not None,
            is_local=is_loopback(request.url.hostname or ""),
            categories=find_categories(page.reader, page.moment),
        )

    def _grant(self, request: Request) -> Grant | None:
        return self._key_grant(request.scope) if self._place.needs_key else None

    def _address(self, request: Request, chosen: dict[str, str]) -> str:
        """Return the address of the feed, with the token of the caller's key off loopback."""
        parameters = dict(chosen)
        if (grant := self._grant(request)) is not None:
            parameters["token"] = self._token(grant)
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"{request.url.scheme}://{request.url.netloc}{FEED_PATH}{query}"


def read_query(parameters: QueryParams) -> FeedQuery:
    """Return the query of an address.

    Raises:
        InvalidArgument: a parameter is unknown, given twice, or can't be read.
    """
    known = (*_LISTS, *_SINGLE)
    for name in parameters:
        if name not in known:
            raise InvalidArgument(
                f"there is no parameter {name!r}; the parameters are {', '.join(known)}"
            )
    lists = {name: _split(parameters.getlist(name)) for name in _LISTS}
    single = {name: _only(name, parameters) for name in _SINGLE}
    estimated, cancelled = single["estimated"] or ESTIMATED[0], single["cancelled"] or CANCELLED[0]
    return FeedQuery(
        coins=lists["coins"],
        categories=lists["categories"],
        event_ids=None if lists["event"] is None else tuple(lists["event"]),
        min_impact=_number("impact", single["impact"]),
        estimated=estimated,  # type: ignore[arg-type]  # checked by write_feed
        cancelled=cancelled,  # type: ignore[arg-type]
        starts=single["from"],
        ends=single["to"],
        as_of=single["as_of"],
        limit=LIMIT if single["limit"] is None else _whole("limit", single["limit"]),
    )


def _split(given: list[str]) -> list[str] | None:
    return [part.strip() for text in given for part in text.split(",") if part.strip()] or None


def _only(name: str, parameters: QueryParams) -> str | None:
    given = [text.strip() for text in parameters.getlist(name) if text.strip()]
    if len(given) > 1:
        raise InvalidArgument(f"{name} is given {len(given)} times; give it once")
    return given[0] if given else None


def _number(name: str, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        raise InvalidArgument(f"{name}={given!r}; expected a number") from None


def _whole(name: str, given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX):
        raise InvalidArgument(f"{name}={given!r}; expected a whole number")
    return int(given)


def _explain(error: AlmanacError) -> str:
    """Return the message of an error, with what to write in an address."""
    if not isinstance(error, AmbiguousCoin) or not error.coins:
        return str(error)
    listed = ", ".join(f"slug:{coin.slug} ({coin.name})" for coin in error.coins)
    first = f"slug:{error.coins[0].slug}"
    return f"Several coins have the same ticker or name: {listed}. Choose one, such as {first}."
