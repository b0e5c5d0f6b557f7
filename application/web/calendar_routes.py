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
from urllib.parse import parse_qs

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from almanac.calendar.feed import LIMIT, Feed, FeedQuery, count_events, default_start, write_feed
from almanac.coins import Coin
from almanac.core.errors import (
    AlmanacError,
    FutureTime,
    InvalidArgument,
    QueryRefused,
    WarehouseError,
)
from almanac.database import Database
from almanac.events import find_pulls, read_known_at
from application.web.filters import FILTERS, make_bar, read_count, read_filters, split_list
from application.web.mirror.mirror import SiteContext
from application.web.pages import Pages, SiteRequest, render
from catalog.server.accounts import Grant
from catalog.server.request_guard import is_loopback
from catalog.server.responses import is_not_modified, make_etag

log = logging.getLogger(__name__)
FEED_PATH: Final = "/calendar.ics"
PAGE_PATH: Final = "/calendar"
_FILTERS: Final = (*FILTERS, "from", "to", "estimated", "cancelled", "event", "limit")
_ESTIMATES: Final = {"include": "On the last day", "only": "Nothing else", "drop": "Left out"}
_OF_FEEDS: Final = (*_FILTERS, "as_of", "token")
_OF_LISTS: Final = ("when", "view", "sort", "page", "kinds", "last", "since", "until", "compare")
"""The parameters of lists of events and of changes that a calendar does not have."""
_MAKING_WAIT_S: Final = 20.0
_PURPOSE: Final = b"calendar feed\0"


class CalendarRoutes:
    """The routes of the calendar. `key_grant` returns the grant of a request's key."""

    def __init__(
        self, database: Database, place: SiteContext, key_grant: Callable[[Scope], Grant | None]
    ) -> None:
        self._database = database
        self._pages = Pages(database, place.base_path)
        self._place = place
        self._key_grant = key_grant
        self._making = BoundedSemaphore(1)

    def routes(self) -> list[BaseRoute]:
        return [Route(FEED_PATH, self.get_feed), Route(PAGE_PATH, self.get_page)]

    def find_grant(self, scope: Scope) -> Grant | None:
        """Return the grant of the key whose token is in the address of a feed."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] != FEED_PATH or len(given) != 1:
            return None
        grants, token = self._place.keys.usable_grants(), given[0].encode()
        found = [g for g in grants if hmac.compare_digest(self._token(g).encode(), token)]
        return found[0] if found else None

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
        except AlmanacError as error:
            status = 400 if isinstance(error, ValueError | LookupError) else 503
            status = 422 if isinstance(error, QueryRefused | FutureTime) else status
            headers = {"retry-after": "10"} if status == 503 else {}
            return PlainTextResponse(f"{error}\n", status, headers)
        if feed.is_truncated:
            counts = f"{feed.events} of {feed.total} events"
            log.warning("a calendar has %s; the others are left out", counts)
            headers["x-truncated"] = counts
        headers["content-type"] = "text/calendar; charset=utf-8"
        headers["content-disposition"] = 'inline; filename="almanac.ics"'
        return Response(feed.content, headers=headers)

    def _head(self, query: FeedQuery) -> tuple[dict[str, str], datetime]:
        """Return the headers of a feed without making it, and the time of its last change.

        It follows from the publication, the pulls by then, the day of its start, and the query.
        """
        reader = self._database.reader
        with reader.pinned():
            at = read_known_at(reader, query.as_of, "as_of")
            publication = reader.publication()
            content = (publication.id, find_pulls(reader, at), default_start(at), query)
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
        parameters = (*_FILTERS, *_OF_LISTS)
        show = self._pages.endpoint(lambda page: self._show(page, request), parameters=parameters)
        return show(request)

    def _show(self, page: SiteRequest, request: Request) -> Response:
        given = {name: page.text(name) for name in (*_FILTERS, "as_of", *_OF_LISTS)}
        chosen = {name: value for name, value in given.items() if value is not None}
        dropped = [name for name in _OF_LISTS if chosen.pop(name, None)]
        filters = read_filters(page)
        query = read_query(QueryParams(chosen))
        if filters.coins is not None:
            coins = [Coin(slug, None, None, None) for slug in filters.coins]
            query = replace(query, coins=coins)
        total = count_events(self._database, query)
        grant = self._key_grant(request.scope) if self._place.needs_key else None
        if grant is not None:
            chosen["token"] = self._token(grant)
        address = page.origin + page.link(FEED_PATH, tz=None, **chosen)
        shown = render(
            "calendar.html",
            page,
            title="Calendar",
            given=given,
            bar=make_bar(page, filters),
            estimates=_ESTIMATES,
            dropped=dropped,
            total=total,
            left_out=max(0, total - query.limit),
            address=address,
            webcal=f"webcal:{address.partition(':')[2]}",
            has_token=grant is not None,
            is_local=is_loopback(request.url.hostname or ""),
        )
        # The size of a compressed page that repeats a parameter tells a secret beside it (BREACH).
        return HTMLResponse(shown, headers={"content-encoding": "identity"} if grant else {})


def read_query(parameters: QueryParams) -> FeedQuery:
    """Return the query of an address.

    Raises:
        InvalidArgument: a parameter is unknown, given twice, or can't be read.
    """
    given: dict[str, str] = {}
    for name, text in parameters.multi_items():
        if name not in _OF_FEEDS:
            listed = ", ".join(_OF_FEEDS)
            raise InvalidArgument(f"there is no parameter {name!r}; the parameters are {listed}")
        if name in given:
            raise InvalidArgument(f"{name} is given more than once; give it once")
        if text.strip():
            given[name] = text.strip()
    rank, events = given.get("max_rank"), split_list(given.get("event"))
    return FeedQuery(
        coins=split_list(given.get("coins")),
        ambiguous=given.get("ambiguous"),  # type: ignore[arg-type]  # checked by write_feed
        categories=split_list(given.get("categories")),
        min_impact=given.get("min_impact"),
        max_rank=None if rank is None else read_count(rank, "max_rank"),
        q=given.get("q"),
        estimated=given.get("estimated"),  # type: ignore[arg-type]  # checked by write_feed
        cancelled=given.get("cancelled", "show"),  # type: ignore[arg-type]
        event_ids=None if events is None else tuple(events),
        starts=given.get("from"),
        ends=given.get("to"),
        as_of=given.get("as_of"),
        limit=read_count(given.get("limit"), "limit", LIMIT),
    )
