"""The bulk export: the snapshot of the day as CSV, streamed (interface 4.8)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from catalog.contract import csv_format, decisions, errors
from catalog.contract.parameters import EventsRequest, read_export_request
from catalog.contract.plans import ELITE, Plan
from catalog.contract.windows import day_start, plan_window
from catalog.server.exchange import VARY, client_has, exchange_of
from catalog.server.gating import ViewNames, event_query, shown_event
from catalog.server.store import CatalogStore, CatalogView, EventQuery, StoredEvent

_ROWS_A_CHUNK = 250
"""Small enough that other requests wait for a few milliseconds at most."""
_ROWS_KEPT = 100_000
"""About 50 MB. Rows of more events are encoded for each export."""


def snapshot_at(now: datetime, plan: Plan) -> datetime:
    """Return the instant of the newest snapshot that the plan's freshness allows."""
    after_midnight = timedelta(minutes=decisions.EXPORT_SNAPSHOT_MINUTE)
    visible = now - timedelta(seconds=plan.freshness_s)
    return day_start(visible - after_midnight) + after_midnight


class ExportRoute:
    """GET of the export; filters of the events list, pagination ignored."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._rows = _EncodedRows()

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
        if request.method == "HEAD":
            return Response(media_type="text/csv", headers=headers)
        chunks = self._chunks(view, view.iter_events(query), exchange.plan)
        return StreamingResponse(chunks, media_type="text/csv", headers=headers)

    async def _chunks(
        self, view: CatalogView, events: Iterator[StoredEvent], plan: Plan
    ) -> AsyncIterator[bytes]:
        yield csv_format.HEADER
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
                known = event, csv_format.encode_rows([shown_event(event, plan, names)])
                if key in self._known or len(self._known) < _ROWS_KEPT:
                    self._known[key] = known
            rows.append(known[1])
        return b"".join(rows)


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
