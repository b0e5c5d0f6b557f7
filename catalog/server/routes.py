"""The handlers of interface section 4: read the request, query the store, answer.

A cursor has the key of the last row sent, so rows that are added or removed between two pages never
shift a page. A digest binds it to the list and its filters. It is not signed: a forged position
shows only rows that its key may read.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from catalog.contract import constants, errors, parameters, records
from catalog.contract.parameters import Parameter, read_query
from catalog.contract.plans import ELITE, Plan, day_start, find_plan_window, find_upcoming_window
from catalog.contract.records import Cancellation, Page, PaginationMeta, Record
from catalog.server.catalog_store import CoinQuery, StorePage, coin_key, date_key, impact_key
from catalog.server.gating import (
    CatalogView,
    is_event_visible,
    make_event_query,
    project_coin,
    project_event,
    require_coverage,
)
from catalog.server.responses import VARY, is_not_modified, json_response, make_etag

RowT = TypeVar("RowT", bound=Record)
KeyT = TypeVar("KeyT")
_DIGEST_BYTES: Final = 8


def write_cursor(list_name: str, filters: Hashable, key: tuple[float | int | str, ...]) -> str:
    payload = msgspec.msgpack.encode((_digest(list_name, filters), *key))
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def read_cursor(cursor: str, list_name: str, filters: Hashable, form: type[KeyT]) -> KeyT:
    """Return the key inside, decoded to the tuple type `form`.

    Raises:
        InvalidCursor: it is not a cursor, or was made for another list or other filters.
    """
    try:
        payload = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        digest, *key = msgspec.msgpack.decode(payload)
        found = msgspec.convert(tuple(key), form)
    except (binascii.Error, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise errors.InvalidCursor("The cursor was not issued by this service") from error
    if digest != _digest(list_name, filters):
        raise errors.InvalidCursor("The cursor belongs to another list or to other filters")
    return found


def _digest(list_name: str, filters: Hashable) -> bytes:
    text = repr((list_name, filters)).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()


def read_parameters(request: Request, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the values of the request's query. Raises InvalidParameter."""
    query: bytes = request.scope["query_string"]
    return read_query(query.decode("utf-8", "replace"), parameters)


def make_page(
    rows: Sequence[RowT], *, total: int, limit: int, cursor: str | None = None
) -> Page[RowT]:
    return Page(data=tuple(rows), meta=PaginationMeta(total=total, limit=limit, cursor=cursor))


def _answer_list(
    request: Request,
    view: CatalogView,
    asked: Mapping[str, Any],
    find: Callable[..., StorePage[Any]],
    key_of: Callable[[Any], tuple[float | int | str, ...]],
    form: Any,
    project: Callable[[Any], Record],
) -> Response:
    """Answer with the page after the cursor. `form` is the type of a row's key in the cursor."""
    name: str = request.scope["route"].name
    selecting = (value for field, value in asked.items() if field not in ("limit", "cursor"))
    filters = view.cursor_filters(*selecting)
    after = asked["cursor"] and read_cursor(asked["cursor"], name, filters, form)
    found = find(after=after, limit=asked["limit"])
    cursor = write_cursor(name, filters, key_of(found.rows[-1])) if found.more else None
    rows = [project(row) for row in found.rows]
    page = make_page(rows, total=found.total, limit=asked["limit"], cursor=cursor)
    return json_response(request, page, max_age_s=constants.LIST_MAX_AGE_S)


def list_coins(request: Request) -> Response:
    view = CatalogView.from_request(request)
    asked = read_parameters(request, parameters.COINS_PARAMETERS)
    query = CoinQuery(
        ts=view.ts,
        upcoming=find_upcoming_window(view.plan, view.moment),
        q=None if asked["q"] is None else asked["q"].casefold(),
        tracked=asked["tracked"],
        coverage_top=view.plan.coverage_top,
    )
    find = partial(view.store.coins, query)
    project = partial(project_coin, plan=view.plan)
    return _answer_list(request, view, asked, find, coin_key, tuple[int, str], project)


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
    view = CatalogView.from_request(request)
    asked = read_parameters(request, parameters.EVENTS_PARAMETERS)
    find = partial(view.store.events, make_event_query(asked, view))
    by_impact = asked["sort_by"] == "impact_desc"
    key: Callable[..., Any] = impact_key if by_impact else date_key
    form: Any = tuple[float, float, str] if by_impact else tuple[float, str]
    project = partial(project_event, plan=view.plan)
    return _answer_list(request, view, asked, find, key, form, project)


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
    view = CatalogView.from_request(request)
    asked = read_parameters(request, parameters.CANCELLATIONS_PARAMETERS)
    usual = view.moment - timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)
    find = partial(view.store.cancellations, view.ts, asked["since"] or usual)
    return _answer_list(
        request,
        view,
        asked,
        find,
        lambda row: (row.cancelled_at.timestamp(), row.id),
        tuple[float, str],
        lambda row: row,
    )


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
    asked = read_parameters(request, parameters.EXPORT_PARAMETERS)
    if request.app.state.lags:
        taken_at = find_snapshot_time(moment, plan)
    else:
        taken_at = store.last_pull(moment) or moment
    earliest = find_plan_window(plan, moment).lower
    query = make_event_query(asked, replace(reading, ts=taken_at), earliest=earliest)
    content = (store.identity, taken_at, asked, query.window, plan.name)
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
