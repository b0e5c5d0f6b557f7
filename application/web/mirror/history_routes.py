"""The mirror's own routes: the history of an event, and the changes in the order of publication.

Each page of changes has a cursor, also the last page: a later request with it returns what was
published since. The cursor contains `since`, so a client sends the cursor alone. Each change has a
cursor, too, and a client can continue after any change.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from almanac.core.timestamps import ORIGIN, US
from catalog.contract import constants, errors
from catalog.contract.parameters import AS_OF, CHANGES_PARAMETERS, Parameter
from catalog.contract.plans import ImpactView
from catalog.contract.records import Event, Page, PaginationMeta, Previous, Record
from catalog.server.catalog_store import ChangeQuery, StoredVersion
from catalog.server.gating import (
    CatalogView,
    is_event_visible,
    name_changed_fields,
    project_event,
    project_previous,
)
from catalog.server.responses import json_response
from catalog.server.routes import make_page, read_cursor, read_parameters, write_cursor

HISTORY_PATH: Final = constants.EVENTS_PATH + "/{id}/history"
CHANGES_PATH: Final = constants.EVENTS_PATH + "/changes"
_LAST: Final = datetime.fromisoformat("9999-12-31T23:59:59.999999Z")


_Time = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]
_Status = Annotated[str, Meta(extra_json_schema={"enum": ["scheduled", "cancelled", "withdrawn"]})]


class KnownVersion(Record, frozen=True, kw_only=True):
    """Extension: one version of an event, as the plan shows it."""

    id: Annotated[str, "The event's identifier."]
    version: Annotated[int, Meta(ge=1), "The number of the version, from 1."]
    known_from: Annotated[_Time, "When the warehouse learned of it, UTC."]
    known_to: Annotated[_Time | None, "When a later version replaced it, UTC."]
    status: Annotated[_Status, "The state of the event."]
    cancelled_at: Annotated[_Time | None, "When the event was cancelled, UTC."]
    kinds: Annotated[tuple[str, ...], "The kinds of the change, such as `rescheduled`."]
    changed_fields: Annotated[tuple[str, ...], "Shown fields that differ from the version before."]
    event: Annotated[Event | None, "The event. Null if it has no date."]


class ChangeRecord(KnownVersion, frozen=True, kw_only=True):
    """Extension: one version in the order of the changes."""

    cursor: Annotated[str, "For the changes after this one."]
    previous: Annotated[dict[str, Any] | None, Previous]


def read_changes(
    reading: CatalogView, *, since: datetime | None = None, cursor: str | None = None, limit: int
) -> Page[ChangeRecord]:
    """Return the changes after a cursor, or those that became known after `since`.

    Raises:
        InvalidCursor: the cursor is not one of this feed, plan and `as_of`.
    """
    store, until = reading.store, reading.ts
    filters = reading.cursor_filters(store.feed_id)
    after, since_us, head = 0, 0, 0
    if cursor is not None:
        after, since_us, head = read_cursor(cursor, "changes", filters, tuple[int, int, int])
    elif since is not None:
        # All that is published: `since` may be in the future of a replay.
        since_us, head = (since - ORIGIN) // US, store.head(_LAST)

    def cursor_after(seq: int) -> str:
        return write_cursor("changes", filters, (seq, since_us, head))

    try:
        query = ChangeQuery(until, after, since=ORIGIN + since_us * US, head=head)
    except OverflowError as error:
        raise errors.InvalidCursor("The cursor was not issued by this service") from error
    found = store.changes(query, limit=limit)
    shown = tuple(
        ChangeRecord(
            **structs.asdict(_shown(version, reading)),
            cursor=cursor_after(version.seq),
            previous=project_previous(version, reading.plan),
        )
        for version in found.rows
        if _is_shown(version, reading)
    )
    end = found.rows[-1].seq if found.more else max(after, store.head(until))
    meta = PaginationMeta(total=found.total, limit=limit, cursor=cursor_after(end))
    return Page(data=shown, meta=meta)


def list_changes(request: Request) -> Response:
    asked = read_parameters(request, CHANGES_PARAMETERS)
    try:
        page = read_changes(CatalogView.from_request(request), **asked)
    except errors.InvalidCursor as error:
        raise errors.InvalidCursor(f"{error.message}. Begin again with since=") from error
    body = msgspec.json.encode(page)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def get_history(request: Request) -> Response:
    """Return the versions of an event that the plan shows, oldest first."""
    reading = CatalogView.from_request(request)
    versions = reading.store.history(request.path_params["id"], reading.ts)
    shown = tuple(_shown(version, reading) for version in versions if _is_shown(version, reading))
    if not shown or shown[-1].version != versions[-1].version:
        raise errors.NotFound("No event has this id")
    page = make_page(shown, total=len(shown), limit=len(shown))
    return json_response(request, page, max_age_s=constants.LIST_MAX_AGE_S)


ROUTES: Final = (
    Route(HISTORY_PATH, get_history, name="history"),
    Route(CHANGES_PATH, list_changes, name="changes"),
)


def extend_parameters(path: str) -> tuple[Parameter, ...]:
    """Return the parameters of a path that the interface does not have."""
    return (AS_OF, *(CHANGES_PARAMETERS if path == CHANGES_PATH else ()))


def _is_shown(version: StoredVersion, reading: CatalogView) -> bool:
    """Whether the plan shows a version. A version without a date is shown only on plans that show
    all dates."""
    plan = reading.plan
    if version.event is None:
        return plan.past_days is None and plan.horizon_days is None and plan.coverage_top is None
    return is_event_visible(version.event, reading)


def _shown(version: StoredVersion, reading: CatalogView) -> KnownVersion:
    """Return a version as the plan shows it, without the names of fields that the plan hides."""
    plan = reading.plan
    return KnownVersion(
        id=version.event_id,
        version=version.version,
        known_from=version.known_from,
        known_to=version.known_to,
        status=version.status,
        cancelled_at=version.cancelled_at,
        kinds=tuple(
            kind
            for kind in version.kinds
            if kind != "rescored" or plan.impact is not ImpactView.NONE
        ),
        changed_fields=name_changed_fields(version, plan),
        event=None if version.event is None else project_event(version.event, plan),
    )
