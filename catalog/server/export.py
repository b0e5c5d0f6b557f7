"""The bulk export: the snapshot of the day as CSV, streamed (interface 4.8)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from catalog.contract import csv_format, decisions, errors
from catalog.contract.parameters import EventsRequest, read_export_request
from catalog.contract.plans import ELITE, Plan
from catalog.contract.records import Event
from catalog.contract.windows import day_start, plan_window
from catalog.server.exchange import VARY, client_has, exchange_of
from catalog.server.gating import ViewNames, event_query, shown_event
from catalog.server.store import CatalogStore, EventQuery

_ROWS_A_CHUNK = 250
"""Small enough that other requests wait for a few milliseconds at most."""


def snapshot_at(now: datetime, plan: Plan) -> datetime:
    """Return the instant of the newest snapshot that the plan's freshness allows."""
    after_midnight = timedelta(minutes=decisions.EXPORT_SNAPSHOT_MINUTE)
    visible = now - timedelta(seconds=plan.freshness_s)
    return day_start(visible - after_midnight) + after_midnight


class ExportRoute:
    """GET of the export; filters of the events list, pagination ignored."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store

    def route(self) -> Route:
        return Route(decisions.EXPORT_PATH, self.get_export, name="export")

    async def get_export(self, request: Request) -> Response:
        exchange = exchange_of(request.scope)
        exchange.route = "export"
        if not exchange.plan.export:
            raise errors.PlanRequired(f"The export needs the plan {ELITE.name.title()} or above")
        query_string: bytes = request.scope["query_string"]
        requested = read_export_request(query_string.decode("utf-8", "replace"))
        query = export_query(requested, exchange.plan, exchange.now)
        taken_at = snapshot_at(exchange.now, exchange.plan)
        headers = {
            "ETag": _etag(self._store.identity, taken_at, query, exchange.plan),
            "Last-Modified": format_datetime(taken_at, usegmt=True),
            "Cache-Control": f"private, max-age={decisions.LIST_MAX_AGE_S}",
            "Vary": VARY,
            "Content-Disposition": f'attachment; filename="events-{taken_at.date()}.csv"',
        }
        if client_has(request.scope, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        view = self._store.at(taken_at)
        names = ViewNames(view, view.categories())
        plan = exchange.plan
        shown = (shown_event(event, plan, names) for event in view.iter_events(query))
        if request.method == "HEAD":
            return Response(media_type="text/csv", headers=headers)
        return StreamingResponse(_chunks(shown), media_type="text/csv", headers=headers)


def export_query(requested: EventsRequest, plan: Plan, now: datetime) -> EventQuery:
    """Return the query of the export: without bounds it is the plan's whole window."""
    whole = plan_window(plan, now)
    lower = whole.lower if requested.lower is None else requested.lower
    bounded = EventsRequest(
        limit=requested.limit,
        cursor=None,
        coins=requested.coins,
        categories=requested.categories,
        lower=lower,
        upper=requested.upper,
        keyword=requested.keyword,
        impact_min=requested.impact_min,
        sort_by=requested.sort_by,
    )
    return event_query(bounded, plan, now)


async def _chunks(events: Iterator[Event]) -> AsyncIterator[bytes]:
    yield csv_format.HEADER
    while rows := csv_format.encode_rows(islice(events, _ROWS_A_CHUNK)):
        yield rows
        await asyncio.sleep(0)


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
