"""The handlers of interface section 4: read the request, query the store, answer.

A cursor has the key of the last row sent, so rows that are added or removed between two pages never
shift a page.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from catalog.contract import constants, errors, records
from catalog.contract.parameters import (
    read_cancellations_request,
    read_coins_request,
    read_events_request,
    read_export_request,
)
from catalog.contract.plans import ELITE, Plan, day_start, find_plan_window, find_upcoming_window
from catalog.contract.records import Cancellation, Page, PaginationMeta, Record
from catalog.server.catalog_store import coin_key, date_key, impact_key
from catalog.server.cursors import read_cursor, write_cursor
from catalog.server.gating import (
    CatalogView,
    is_event_visible,
    make_coin_query,
    make_event_query,
    project_coin,
    project_event,
    require_coverage,
)
from catalog.server.responses import VARY, is_not_modified, json_response, make_etag

RowT = TypeVar("RowT", bound=Record)
KeyT = TypeVar("KeyT")


def read_query_string(request: Request) -> str:
    query: bytes = request.scope["query_string"]
    return query.decode("utf-8", "replace")


def make_page(
    rows: Sequence[RowT], *, total: int, limit: int, cursor: str | None = None
) -> Page[RowT]:
    return Page(data=tuple(rows), meta=PaginationMeta(total=total, limit=limit, cursor=cursor))


def _read_after(cursor: str | None, name: str, filters: Hashable, form: type[KeyT]) -> KeyT | None:
    return None if cursor is None else read_cursor(cursor, name, filters, form)


def list_coins(request: Request) -> Response:
    reading = CatalogView.from_request(request)
    requested = read_coins_request(read_query_string(request))
    filters = reading.cursor_filters(requested.q, requested.tracked)
    after = _read_after(requested.cursor, "coins", filters, tuple[int, str])
    query = make_coin_query(requested, reading)
    found = reading.store.coins(query, after=after, limit=requested.limit)
    cursor = write_cursor("coins", filters, coin_key(found.rows[-1])) if found.more else None
    rows = [project_coin(coin, reading.plan) for coin in found.rows]
    page = make_page(rows, total=found.total, limit=requested.limit, cursor=cursor)
    return json_response(request, page, max_age_s=constants.LIST_MAX_AGE_S)


def get_coin(request: Request) -> Response:
    reading = CatalogView.from_request(request)
    upcoming = find_upcoming_window(reading.plan, reading.moment)
    coin = reading.store.coin(request.path_params["slug"], reading.ts, upcoming)
    if coin is None:
        raise errors.NotFound("No coin has this slug")
    require_coverage(coin, reading.plan)
    record = project_coin(coin, reading.plan)
    return json_response(request, record, max_age_s=constants.LIST_MAX_AGE_S)


def list_events(request: Request) -> Response:
    reading = CatalogView.from_request(request)
    requested = read_events_request(read_query_string(request))
    query = make_event_query(requested, reading)
    by_impact = requested.sort_by == "impact_desc"
    filters = reading.cursor_filters(replace(requested, limit=0, cursor=None))
    form: Any = tuple[float, float, str] if by_impact else tuple[float, str]
    after = _read_after(requested.cursor, "events", filters, form)
    found = reading.store.events(query, after=after, limit=requested.limit)
    key = impact_key if by_impact else date_key
    cursor = write_cursor("events", filters, key(found.rows[-1])) if found.more else None
    rows = [project_event(event, reading.plan) for event in found.rows]
    page = make_page(rows, total=found.total, limit=requested.limit, cursor=cursor)
    return json_response(request, page, max_age_s=constants.LIST_MAX_AGE_S)


def get_event(request: Request) -> Response:
    reading, event_id = CatalogView.from_request(request), request.path_params["id"]
    plan, ts = reading.plan, reading.ts
    found = reading.store.event(event_id, ts)
    if found is not None and found.status == "cancelled" and found.cancelled_at is not None:
        body = Cancellation(id=event_id, cancelled_at=found.cancelled_at)
        raise errors.EventCancelled(beside=msgspec.to_builtins(body))
    if (
        found is None
        or found.event is None
        or found.status != "scheduled"
        or not is_event_visible(found.event, reading)
    ):
        raise errors.NotFound("No event has this id")
    record = project_event(found.event, plan)
    return json_response(request, record, max_age_s=constants.LIST_MAX_AGE_S)


def list_cancellations(request: Request) -> Response:
    reading = CatalogView.from_request(request)
    requested = read_cancellations_request(read_query_string(request))
    usual = reading.moment - timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
    since = requested.since or usual
    filters = reading.cursor_filters(requested.since)
    after = _read_after(requested.cursor, "cancellations", filters, tuple[float, str])
    found = reading.store.cancellations(reading.ts, since, after=after, limit=requested.limit)
    keys = [(row.cancelled_at.timestamp(), row.id) for row in found.rows[-1:]]
    cursor = write_cursor("cancellations", filters, keys[0]) if found.more else None
    page = make_page(found.rows, total=found.total, limit=requested.limit, cursor=cursor)
    return json_response(request, page, max_age_s=constants.LIST_MAX_AGE_S)


def list_categories(request: Request) -> Response:
    reading = CatalogView.from_request(request)
    rows = reading.store.categories(reading.ts)
    page = make_page(rows, total=len(rows), limit=max(1, len(rows)))
    return json_response(request, page, max_age_s=constants.CATEGORIES_MAX_AGE_S)


def get_usage(request: Request) -> Response:
    record = request.app.state.usage.make_record(request.state.grant, request.state.now)
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(record), media_type="application/json", headers=headers)


def get_export(request: Request) -> Response:
    """Return the filters of the events list as CSV; without bounds, the plan's whole window."""
    reading = CatalogView.from_request(request)
    plan, moment, store = reading.plan, reading.moment, reading.store
    if not plan.export:
        raise errors.PlanRequired(f"The export needs the plan {ELITE.name.title()} or above")
    requested = read_export_request(read_query_string(request))
    if requested.lower is None:
        requested = replace(requested, lower=find_plan_window(plan, moment).lower)
    if request.app.state.lags:
        taken_at = find_snapshot_time(moment, plan)
    else:
        taken_at = store.last_pull(moment) or moment
    query = make_event_query(requested, replace(reading, ts=taken_at))
    content = (store.identity, taken_at, requested, query.window, plan.name)
    headers = {
        "ETag": make_etag(repr(content).encode()),
        "Last-Modified": format_datetime(taken_at, usegmt=True),
        "Cache-Control": f"private, max-age={constants.LIST_MAX_AGE_S}",
        "Vary": VARY,
        "Content-Disposition": f'attachment; filename="events-{taken_at.date()}.csv"',
    }
    if is_not_modified(request, headers["ETag"], taken_at):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":
        return Response(media_type="text/csv", headers=headers)
    rows = chain([records.HEADER], store.iter_csv(query, plan))
    return StreamingResponse(rows, media_type="text/csv", headers=headers)


def find_snapshot_time(now: datetime, plan: Plan) -> datetime:
    """Return the time of the newest snapshot that the plan's freshness allows."""
    after_midnight = timedelta(minutes=constants.EXPORT_SNAPSHOT_MINUTE)
    visible = now - timedelta(seconds=plan.freshness_s)
    return day_start(visible - after_midnight) + after_midnight


async def get_metrics(request: Request) -> Response:
    body = generate_latest(request.app.state.metrics.registry)
    return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")


async def get_health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


ROUTES: Final = (
    Route(constants.EVENTS_PATH, list_events, name="events"),
    Route(constants.CANCELLATIONS_PATH, list_cancellations, name="cancellations"),
    Route(constants.EXPORT_PATH, get_export, name="export"),
    Route(constants.EVENTS_PATH + "/{id}", get_event, name="event"),
    Route(constants.COINS_PATH, list_coins, name="coins"),
    Route(constants.COINS_PATH + "/{slug}", get_coin, name="coin"),
    Route(constants.CATEGORIES_PATH, list_categories, name="categories"),
    Route(constants.USAGE_PATH, get_usage, name="usage"),
    Route("/metrics", get_metrics, name="metrics"),
    Route("/healthz", get_health, name="healthz"),
)
"""The name is the label of the metrics."""
