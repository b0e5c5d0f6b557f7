"""The routes of interface section 4 without the export: read request, query view, answer."""

from datetime import timedelta
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from catalog.contract import decisions, errors
from catalog.contract.openapi import openapi_json
from catalog.contract.parameters import (
    read_cancellations_request,
    read_coins_request,
    read_events_request,
)
from catalog.contract.records import (
    Cancellation,
    Category,
    Page,
    PaginationMeta,
)
from catalog.contract.windows import upcoming_window
from catalog.server.accounts.usage import UsageBook
from catalog.server.cursors import CursorSigner
from catalog.server.docs_page import docs_html
from catalog.server.exchange import Exchange, exchange_of, json_answer
from catalog.server.gating import (
    RowsOfViews,
    coin_query,
    event_query,
    event_visible,
    require_coverage,
)
from catalog.server.store import (
    CancellationKey,
    CatalogStore,
    CatalogView,
    CoinKey,
    DateKey,
    ImpactKey,
    coin_key,
    date_key,
    impact_key,
)

Row = TypeVar("Row")


def _query(request: Request) -> str:
    query: bytes = request.scope["query_string"]
    return query.decode("utf-8", "replace")


def _page(rows: tuple[Row, ...], *, total: int, limit: int, cursor: str | None) -> Page[Row]:
    return Page(data=rows, meta=PaginationMeta(total=total, limit=limit, cursor=cursor))


class CatalogRoutes:
    """Handlers over a store. Every answer but usage lags by the plan's freshness."""

    def __init__(self, store: CatalogStore, *, cursors: CursorSigner, usage: UsageBook) -> None:
        self._store = store
        self._cursors = cursors
        self._usage = usage
        self._rows = RowsOfViews()

    def routes(self) -> list[Route]:
        return [
            Route(decisions.EVENTS_PATH, self.list_events),
            Route(decisions.CANCELLATIONS_PATH, self.list_cancellations),
            Route(decisions.EVENTS_PATH + "/{id}", self.get_event),
            Route(decisions.COINS_PATH, self.list_coins),
            Route(decisions.COINS_PATH + "/{slug}", self.get_coin),
            Route(decisions.CATEGORIES_PATH, self.list_categories),
            Route(decisions.USAGE_PATH, self.get_usage),
            Route(decisions.OPENAPI_PATH, get_openapi),
            Route("/docs", get_docs),
            Route("/", to_docs),
        ]

    async def list_coins(self, request: Request) -> Response:
        exchange, view = self._open_view(request, "coins")
        requested = read_coins_request(_query(request))
        filters = (requested.q, requested.tracked)
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
        made, upcoming = self._rows.of(view), upcoming_window(exchange.plan, exchange.now)
        rows = made.coins(found.coins, exchange.plan, upcoming)
        page = _page(rows, total=found.total, limit=requested.limit, cursor=cursor)
        return json_answer(request.scope, page, max_age_s=decisions.LIST_MAX_AGE_S)

    async def get_coin(self, request: Request) -> Response:
        exchange, view = self._open_view(request, "coin")
        coin = view.coin(request.path_params["slug"])
        if coin is None:
            raise errors.NotFound("No coin has this slug")
        require_coverage(coin, exchange.plan)
        upcoming = upcoming_window(exchange.plan, exchange.now)
        (record,) = self._rows.of(view).coins((coin,), exchange.plan, upcoming)
        return json_answer(request.scope, record, max_age_s=decisions.LIST_MAX_AGE_S)

    async def list_events(self, request: Request) -> Response:
        exchange, view = self._open_view(request, "events")
        requested = read_events_request(_query(request))
        query = event_query(requested, exchange.plan, exchange.now)
        by_impact = requested.sort_by == "impact_desc"
        filters = (
            *(requested.coins, requested.categories, requested.lower, requested.upper),
            *(requested.keyword, requested.impact_min, requested.sort_by),
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
        page = _page(rows, total=found.total, limit=requested.limit, cursor=cursor)
        return json_answer(request.scope, page, max_age_s=decisions.LIST_MAX_AGE_S)

    async def get_event(self, request: Request) -> Response:
        exchange, view = self._open_view(request, "event")
        event_id: str = request.path_params["id"]
        event = view.event(event_id)
        if event is None:
            cancelled_at = view.cancelled_at(event_id)
            if cancelled_at is None:
                raise errors.NotFound("No event has this id")
            body = Cancellation(id=event_id, cancelled_at=cancelled_at)
            raise errors.EventCancelled(beside=msgspec.to_builtins(body))
        if not event_visible(event, exchange.plan, view, exchange.now):
            raise errors.NotFound("No event has this id")
        (record,) = self._rows.of(view).events((event,), exchange.plan)
        return json_answer(request.scope, record, max_age_s=decisions.LIST_MAX_AGE_S)

    async def list_cancellations(self, request: Request) -> Response:
        exchange, view = self._open_view(request, "cancellations")
        requested = read_cancellations_request(_query(request))
        since = requested.since
        if since is None:
            since = exchange.now - timedelta(days=decisions.CANCELLATIONS_SINCE_DAYS)
        after: CancellationKey | None = None
        if requested.cursor is not None:
            after = self._cursors.open(
                requested.cursor, "cancellations", requested.since, tuple[float, str]
            )
        found = view.cancellations(since=since, after=after, limit=requested.limit)
        cursor = None
        if found.more:
            last = found.entries[-1]
            key = (last.cancelled_at.timestamp(), last.id)
            cursor = self._cursors.seal("cancellations", requested.since, key)
        rows = tuple(
            Cancellation(id=entry.id, cancelled_at=entry.cancelled_at) for entry in found.entries
        )
        page = _page(rows, total=found.total, limit=requested.limit, cursor=cursor)
        return json_answer(request.scope, page, max_age_s=decisions.LIST_MAX_AGE_S)

    async def list_categories(self, request: Request) -> Response:
        _, view = self._open_view(request, "categories")
        rows = tuple(Category(id=found.id, name=found.name) for found in view.categories())
        page = _page(rows, total=len(rows), limit=max(1, len(rows)), cursor=None)
        return json_answer(request.scope, page, max_age_s=decisions.CATEGORIES_MAX_AGE_S)

    async def get_usage(self, request: Request) -> Response:
        exchange = exchange_of(request.scope)
        exchange.route = "usage"
        if exchange.grant is None:
            raise errors.Forbidden()
        record = self._usage.read_out(exchange.grant, exchange.now)
        return json_answer(request.scope, record, max_age_s=None)

    def _open_view(self, request: Request, route: str) -> tuple[Exchange, CatalogView]:
        exchange = exchange_of(request.scope)
        exchange.route = route
        lag = timedelta(seconds=exchange.plan.freshness_s)
        return exchange, self._store.at(exchange.now - lag)


async def to_docs(request: Request) -> Response:
    exchange_of(request.scope).route = "root"
    return RedirectResponse("/docs", status_code=307)


async def get_openapi(request: Request) -> Response:
    exchange_of(request.scope).route = "openapi"
    return Response(openapi_json(), media_type="application/json")


async def get_docs(request: Request) -> Response:
    exchange_of(request.scope).route = "docs"
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
    return Response(
        docs_html(), media_type="text/html", headers={"Content-Security-Policy": policy}
    )
