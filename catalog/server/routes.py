"""The routes of interface section 4: read the request, query the view, answer; the export streams.

A cursor has the key of the last row sent, bound to its filters and signed. Rows that are added or
removed between two pages never shift a page, and only the signing key must survive a restart.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import islice
from typing import TypeVar

import msgspec
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Scope

from catalog.contract import constants, errors, records
from catalog.contract.errors import InvalidCursor
from catalog.contract.openapi import openapi_json
from catalog.contract.parameters import (
    EventsRequest,
    read_cancellations_request,
    read_coins_request,
    read_events_request,
    read_export_request,
)
from catalog.contract.plans import ELITE, Plan, day_start, plan_window, upcoming_window
from catalog.contract.records import (
    Cancellation,
    Category,
    Page,
    PaginationMeta,
)
from catalog.server.accounts import UsageBook
from catalog.server.docs_page import docs_html
from catalog.server.exchange import (
    VARY,
    Exchange,
    Handler,
    JsonAnswer,
    client_has,
    json_answer,
    page_answer,
    tagged_answer,
)
from catalog.server.gating import (
    ViewNames,
    ViewRows,
    coin_query,
    event_query,
    event_visible,
    require_coverage,
    shown_event,
)
from catalog.server.store import (
    CancellationKey,
    CatalogStore,
    CatalogView,
    CoinKey,
    DateKey,
    EventQuery,
    ImpactKey,
    StoredEvent,
    coin_key,
    date_key,
    impact_key,
)

KeyT = TypeVar("KeyT")
_TAG_BYTES = 16
_DIGEST_BYTES = 8


class CursorSigner:
    """Seals and opens cursors with one secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError(f"a cursor secret needs at least 16 bytes, got {len(secret)}")
        self._secret = secret

    def __repr__(self) -> str:
        return "CursorSigner(secret=...)"

    def seal(self, list_name: str, filters: Hashable, key: tuple[float | int | str, ...]) -> str:
        payload = msgspec.msgpack.encode((_binding(list_name, filters), *key))
        return base64.urlsafe_b64encode(self._tag(payload) + payload).decode().rstrip("=")

    def open(self, cursor: str, list_name: str, filters: Hashable, form: type[KeyT]) -> KeyT:
        """Return the key inside, decoded to the tuple type `form`.

        Raises:
            InvalidCursor: not sealed here, altered, or made for another list or other filters.
        """
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCursor("The cursor was not issued by this service") from error
        tag, payload = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
        # The text is compared too: base64 has unused bits, and an altered cursor must not pass.
        canonical = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        if not hmac.compare_digest(tag, self._tag(payload)) or canonical != cursor:
            raise InvalidCursor("The cursor was not issued by this service")
        binding, *key = msgspec.msgpack.decode(payload)
        if binding != _binding(list_name, filters):
            raise InvalidCursor("The cursor belongs to another list or to other filters")
        return msgspec.convert(tuple(key), form)

    def _tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")[:_TAG_BYTES]


def _binding(list_name: str, filters: Hashable) -> bytes:
    return hashlib.blake2b(repr((list_name, filters)).encode(), digest_size=_DIGEST_BYTES).digest()


_ROWS_A_CHUNK = 250
"""Small enough that other requests wait for a few milliseconds at most."""
_ROWS_KEPT = 100_000
"""About 50 MB. Rows of more events are encoded for each export."""


def snapshot_at(now: datetime, plan: Plan) -> datetime:
    """Return the time of the newest snapshot that the plan's freshness allows."""
    after_midnight = timedelta(minutes=constants.EXPORT_SNAPSHOT_MINUTE)
    visible = now - timedelta(seconds=plan.freshness_s)
    return day_start(visible - after_midnight) + after_midnight


class ExportRoute:
    """GET of the export; filters of the events list, pagination ignored."""

    def __init__(self, store: CatalogStore, *, lags: bool = True) -> None:
        self._store = store
        self._lags = lags
        self._rows = _EncodedRows()

    def handlers(self) -> dict[str, Handler]:
        return {constants.EXPORT_PATH: self.get_export}

    async def get_export(self, scope: Scope, exchange: Exchange) -> Response:
        exchange.route = "export"
        if not exchange.plan.export:
            raise errors.PlanRequired(f"The export needs the plan {ELITE.name.title()} or above")
        requested = read_export_request(_query(scope))
        query = export_query(requested, exchange.plan, exchange.moment)
        if self._lags:
            taken_at = snapshot_at(exchange.moment, exchange.plan)
        else:
            taken_at = self._store.newest(exchange.moment)
        headers = {
            "ETag": _etag(self._store.identity, taken_at, query, exchange.plan),
            "Last-Modified": format_datetime(taken_at, usegmt=True),
            "Cache-Control": f"private, max-age={constants.LIST_MAX_AGE_S}",
            "Vary": VARY,
            "Content-Disposition": f'attachment; filename="events-{taken_at.date()}.csv"',
        }
        if client_has(scope, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        view = self._store.at(taken_at)
        if scope["method"] == "HEAD":
            return Response(media_type="text/csv", headers=headers)
        chunks = self._chunks(view, view.iter_events(query), exchange.plan)
        return StreamingResponse(chunks, media_type="text/csv", headers=headers)

    async def _chunks(
        self, view: CatalogView, events: Iterator[StoredEvent], plan: Plan
    ) -> AsyncIterator[bytes]:
        yield records.HEADER
        names = ViewNames(view, view.categories())
        while rows := self._rows.of(islice(events, _ROWS_A_CHUNK), plan, names):
            yield rows
            await asyncio.sleep(0)


class _EncodedRows:
    """The rows of events as a plan shows them: most events are the same in the next snapshot."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[StoredEvent, bytes]] = {}

    def of(self, events: Iterable[StoredEvent], plan: Plan, names: ViewNames) -> bytes:
        """Return the rows of these events; empty if there is none."""
        rows: list[bytes] = []
        for event in events:
            key = plan.name, event.id
            known = self._known.get(key)
            # Category names belong to the store, and of a coin a row has the slug alone.
            if known is None or known[0] != event:
                known = event, records.encode_rows([shown_event(event, plan, names)])
                if key in self._known or len(self._known) < _ROWS_KEPT:
                    self._known[key] = known
            rows.append(known[1])
        return b"".join(rows)


def export_query(requested: EventsRequest, plan: Plan, now: datetime) -> EventQuery:
    """Return the query of the export: without bounds it is the plan's whole window."""
    whole = plan_window(plan, now)
    lower = whole.lower if requested.lower is None else requested.lower
    return event_query(replace(requested, lower=lower), plan, now)


def _etag(identity: str, taken_at: datetime, query: EventQuery, plan: Plan) -> str:
    filters = (
        *(
            identity,
            taken_at,
            plan.name,
            query.window,
            query.keyword,
            query.impact_min,
            query.order,
        ),
        *(
            sorted(names) if names is not None else None
            for names in (query.coins, query.categories)
        ),
    )
    return f'W/"{hashlib.blake2b(repr(filters).encode(), digest_size=12).hexdigest()}"'


Row = TypeVar("Row")


def _query(scope: Scope) -> str:
    query: bytes = scope["query_string"]
    return query.decode("utf-8", "replace")


def _page(rows: tuple[Row, ...], *, total: int, limit: int, cursor: str | None) -> Page[Row]:
    return Page(data=rows, meta=PaginationMeta(total=total, limit=limit, cursor=cursor))


class CatalogRoutes:
    """Handlers over a store. If `lags`, each answer but usage is as old as the plan's freshness."""

    def __init__(
        self, store: CatalogStore, *, cursors: CursorSigner, usage: UsageBook, lags: bool = True
    ) -> None:
        self._store = store
        self._lags = lags
        self._cursors = cursors
        self._usage = usage
        self._rows = ViewRows()

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by path; a name in braces stands for the last part of the path."""
        return {
            constants.EVENTS_PATH: self.list_events,
            constants.CANCELLATIONS_PATH: self.list_cancellations,
            constants.EVENTS_PATH + "/{id}": self.get_event,
            constants.COINS_PATH: self.list_coins,
            constants.COINS_PATH + "/{slug}": self.get_coin,
            constants.CATEGORIES_PATH: self.list_categories,
            constants.USAGE_PATH: self.get_usage,
            constants.OPENAPI_PATH: get_openapi,
            "/docs": get_docs,
            "/": to_docs,
        }

    async def list_coins(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "coins")
        requested = read_coins_request(_query(scope))
        filters = (requested.q, requested.tracked, exchange.as_of)
        after: CoinKey | None = None
        if requested.cursor is not None:
            after = self._cursors.open(requested.cursor, "coins", filters, tuple[int, str])
        found = view.coins(
            coin_query(requested.q, requested.tracked, exchange.plan),
            after=after,
            limit=requested.limit,
        )
        cursor = None
        if found.more:
            cursor = self._cursors.seal("coins", filters, coin_key(found.coins[-1]))
        made, upcoming = self._rows.of(view), upcoming_window(exchange.plan, exchange.moment)
        rows = made.coins(found.coins, exchange.plan, upcoming)
        meta = PaginationMeta(total=found.total, limit=requested.limit, cursor=cursor)
        return page_answer(scope, rows, meta, max_age_s=constants.LIST_MAX_AGE_S)

    async def get_coin(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "coin")
        coin = view.coin(exchange.name)
        if coin is None:
            raise errors.NotFound("No coin has this slug")
        require_coverage(coin, exchange.plan)
        upcoming = upcoming_window(exchange.plan, exchange.moment)
        (row,) = self._rows.of(view).coins((coin,), exchange.plan, upcoming)
        return tagged_answer(scope, row, max_age_s=constants.LIST_MAX_AGE_S)

    async def list_events(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "events")
        requested = read_events_request(_query(scope))
        query = event_query(requested, exchange.plan, exchange.moment)
        by_impact = requested.sort_by == "impact_desc"
        filters = (
            *(requested.coins, requested.categories, requested.lower, requested.upper),
            *(requested.keyword, requested.impact_min, requested.sort_by, exchange.as_of),
        )
        after: DateKey | ImpactKey | None = None
        if requested.cursor is not None:
            if by_impact:
                after = self._cursors.open(
                    requested.cursor, "events", filters, tuple[float, float, str]
                )
            else:
                after = self._cursors.open(requested.cursor, "events", filters, tuple[float, str])
        found = view.events(query, after=after, limit=requested.limit)
        cursor = None
        if found.more:
            key = (impact_key if by_impact else date_key)(found.events[-1])
            cursor = self._cursors.seal("events", filters, key)
        rows = self._rows.of(view).events(found.events, exchange.plan)
        meta = PaginationMeta(total=found.total, limit=requested.limit, cursor=cursor)
        return page_answer(scope, rows, meta, max_age_s=constants.LIST_MAX_AGE_S)

    async def get_event(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "event")
        event_id = exchange.name
        event = view.event(event_id)
        if event is None:
            cancelled_at = view.cancelled_at(event_id)
            if cancelled_at is None:
                raise errors.NotFound("No event has this id")
            body = Cancellation(id=event_id, cancelled_at=cancelled_at)
            raise errors.EventCancelled(beside=msgspec.to_builtins(body))
        if not event_visible(event, exchange.plan, view, exchange.moment):
            raise errors.NotFound("No event has this id")
        (row,) = self._rows.of(view).events((event,), exchange.plan)
        return tagged_answer(scope, row, max_age_s=constants.LIST_MAX_AGE_S)

    async def list_cancellations(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "cancellations")
        requested = read_cancellations_request(_query(scope))
        since = requested.since
        if since is None:
            since = exchange.moment - timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
        filters = (requested.since, exchange.as_of)
        after: CancellationKey | None = None
        if requested.cursor is not None:
            after = self._cursors.open(
                requested.cursor, "cancellations", filters, tuple[float, str]
            )
        found = view.cancellations(since=since, after=after, limit=requested.limit)
        cursor = None
        if found.more:
            last = found.entries[-1]
            key = (last.cancelled_at.timestamp(), last.id)
            cursor = self._cursors.seal("cancellations", filters, key)
        rows = tuple(
            Cancellation(id=entry.id, cancelled_at=entry.cancelled_at) for entry in found.entries
        )
        page = _page(rows, total=found.total, limit=requested.limit, cursor=cursor)
        return json_answer(scope, page, max_age_s=constants.LIST_MAX_AGE_S)

    async def list_categories(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        view = self._open_view(exchange, "categories")
        rows = tuple(Category(id=found.id, name=found.name) for found in view.categories())
        page = _page(rows, total=len(rows), limit=max(1, len(rows)), cursor=None)
        return json_answer(scope, page, max_age_s=constants.CATEGORIES_MAX_AGE_S)

    async def get_usage(self, scope: Scope, exchange: Exchange) -> JsonAnswer:
        exchange.route = "usage"
        if exchange.grant is None:
            raise errors.Forbidden()
        record = self._usage.read_out(exchange.grant, exchange.now)
        return json_answer(scope, record, max_age_s=None)

    def _open_view(self, exchange: Exchange, route: str) -> CatalogView:
        exchange.route = route
        lag = timedelta(seconds=exchange.plan.freshness_s if self._lags else 0)
        return self._store.at(exchange.moment - lag)


async def to_docs(scope: Scope, exchange: Exchange) -> Response:
    exchange.route = "root"
    return RedirectResponse("/docs", status_code=307)


async def get_openapi(scope: Scope, exchange: Exchange) -> Response:
    exchange.route = "openapi"
    return Response(openapi_json(), media_type="application/json")


async def get_docs(scope: Scope, exchange: Exchange) -> Response:
    exchange.route = "docs"
    return docs_response(docs_html())


def docs_response(page: bytes) -> Response:
    """Return the page with a policy under which it loads nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})
