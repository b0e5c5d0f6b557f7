"""The records as they are sent: types, JSON names, the CSV form of the export (interface 2, 4.8).

Fields are in the order of the JSON. An `Event` here is what one plan shows: hidden fields are None,
and `categories` is UNSET (the key is left out) on Free. The CSV follows RFC 4180, in UTF-8.
"""

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from catalog.contract import constants
from catalog.contract.plans import PLANS

RecordT = TypeVar("RecordT")

_SECOND = {"format": "date-time", "pattern": "^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z$"}
_BANDS = [name for _, name in constants.IMPACT_BANDS]
# The bounds of a type are also checked where a response is read; `extra_json_schema` never is.
Instant = Annotated[datetime, Meta(extra_json_schema=_SECOND)]
Address = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Score = Annotated[float, Meta(ge=constants.IMPACT_MIN, le=constants.IMPACT_MAX)]
Band = Annotated[str, Meta(extra_json_schema={"enum": _BANDS})]
DateType = Annotated[str, Meta(extra_json_schema={"enum": ["date", "month", "quarter", "year"]})]
PlanName = Annotated[str, Meta(extra_json_schema={"enum": list(PLANS)})]
DeliveryId = Annotated[str, Meta(extra_json_schema={"pattern": "^evt_dlv_[0-9a-f]+$"})]
DeliveryKind = Annotated[str, Meta(extra_json_schema={"enum": list(constants.WEBHOOK_KINDS)})]
ApiVersion = Annotated[str, Meta(extra_json_schema={"enum": [constants.WEBHOOK_API_VERSION]})]
Up = Annotated[str, Meta(extra_json_schema={"enum": ["ok"]})]


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A frozen record whose JSON names are camelCase. The document shows its texts."""


class EventCoin(Record, frozen=True):
    """A linked coin."""

    slug: Annotated[str, "The coin's identifier."]
    symbol: Annotated[str, "Trading ticker; not unique."]
    name: Annotated[str, "Name to show."]


class Event(Record, frozen=True, kw_only=True):
    """One dated event. A field that the plan hides is null, which is not the same as empty."""

    id: Annotated[str, "The event's identifier."]
    slug: Annotated[str | None, "Readable name for addresses; not an identifier."]
    title: Annotated[str, "Editorial title."]
    description: Annotated[str | None, "The subject of the event."]
    displayed_date: Annotated[str, "The date for people, such as `16 Sep → 24 Oct` or `Q3 2026`."]
    date: Annotated[Instant, "Start of the event, UTC. If estimated, a deadline not to be shown."]
    date_end: Annotated[Instant | None, "End of an event of several days, UTC; else null."]
    date_type: Annotated[DateType, "How exact the date is."]
    is_estimated: Annotated[bool, "True when the date is estimated."]
    categories: Annotated[tuple[str, ...] | UnsetType | None, "Names of categories."] = UNSET
    coins: tuple[EventCoin, ...] = ()
    impact: Annotated[
        Score | Band | None, "Pro shows only the band. Its limits are 2.5, 5 and 7.5."
    ] = None
    impact_summary: Annotated[str | None, "Why it may matter."] = None
    source_url: Annotated[Address | None, "Address of the source."] = None
    snapshot_url: Annotated[Address | None, "Address of a snapshot of the source."] = None
    last_verified_at: Annotated[Instant | None, "When it was last verified, UTC."] = None
    created_at: Annotated[Instant | None, "When it was entered, UTC."]
    updated_at: Annotated[Instant | None, "When it was last changed, UTC."]


class CancelledEvent(Event, frozen=True, kw_only=True):
    """The payload of an `events.cancelled` delivery, an Event with the time it ended."""

    cancelled_at: Annotated[Instant, "When it was cancelled, UTC."]


class Coin(Record, frozen=True):
    """One coin, with counts of its upcoming events inside what the plan shows."""

    slug: Annotated[str, "The coin's identifier, for the path and for the filter `coins`."]
    symbol: Annotated[str, "Trading ticker. Not unique, and often in lower case."]
    name: Annotated[str, "Name to show."]
    rank: Annotated[Number | None, "Market-cap rank at the last sync; null when unranked."]
    tracked: Annotated[bool, "True when the editorial team monitors it. Others get no new events."]
    icon_url: Annotated[Address, "Address of the coin's icon, a PNG of about 64 x 64 pixels."]
    upcoming_count: Annotated[Count, "How many upcoming events it has."]
    major_count: Annotated[Count | None, "How many of them have an impact of 7.5 or more."]
    peak_impact: Annotated[Score | None, "The highest impact score among them."]


class Category(Record, frozen=True):
    """One editorial category."""

    id: Annotated[str, "The value for the filter `categories`."]
    name: Annotated[str, "The name, as events carry it."]


class Cancellation(Record, frozen=True):
    """One cancelled event."""

    id: Annotated[str, "The event's identifier."]
    cancelled_at: Annotated[Instant, "When it was cancelled, UTC."]


class Period(Record, frozen=True):
    """A quota month."""

    start: Annotated[Instant, "Its start, UTC."]
    end: Annotated[Instant, "The start of the next month, UTC."]


class Usage(Record, frozen=True):
    """A key's account of its month."""

    plan: Annotated[PlanName, "The plan of the key."]
    period: Period
    used: Annotated[Count, "Requests counted this month, this one among them."]
    limit: Annotated[Count | None, "Requests in the month's quota. Null where there is none."]
    remaining: Annotated[Count | None, "Requests left this month. Null where there is no quota."]
    reset_at: Annotated[Instant, "When the quota starts again, UTC."]
    rate: Annotated[float, Meta(ge=0), "Requests per second, sustained."]
    burst: Annotated[Number, "Requests together."]


class PaginationMeta(Record, frozen=True):
    """About a list and its page."""

    total: Annotated[Count, "Records that match the filters, on all pages."]
    limit: Annotated[Number, "Page size that was applied."]
    cursor: Annotated[str | None, "For the next page; null on the last one."]


class Page(Record, Generic[RecordT], frozen=True):
    """One page of a list."""

    data: Annotated[tuple[RecordT, ...], "The records."]
    meta: PaginationMeta


Previous = "The former values of `changedFields`, and the former `status` if it changed."


class Delivery(Record, frozen=True):
    """The body of a webhook, the same at every attempt."""

    id: Annotated[DeliveryId, "The delivery's identifier."]
    type: Annotated[DeliveryKind, "What happened."]
    api_version: Annotated[ApiVersion, "The version of this body."]
    delivered_at: Annotated[Instant, "When it was first due to be sent, UTC."]
    data: Annotated[Event, "The event as it then was; a CancelledEvent when it was cancelled."]
    created_at: Annotated[Instant | UnsetType, "When a mirror learned of the change, UTC."] = UNSET
    previous: Annotated[dict[str, Any] | UnsetType, Previous] = UNSET


class ServiceHealth(Record, frozen=True):
    """The state of the service."""

    status: Annotated[Up, "Always `ok`; a service that is down does not answer."] = "ok"


EVENT_FIELDS: tuple[str, ...] = tuple(field.encode_name for field in msgspec.structs.fields(Event))
"""Names of the Event fields in JSON, in order; also the columns of the export."""


LIST_SEPARATOR = ";"
HEADER = (",".join(EVENT_FIELDS) + "\r\n").encode()


def instant_text(instant: datetime) -> str:
    """Return `<YYYY-MM-DD>T<HH:MM:SS>Z` (interface section 1)."""
    # Half the time of strftime, which is most of a row's.
    return f"{instant.isoformat()[:19]}Z"


def _row(event: Event) -> list[object]:
    cells = msgspec.to_builtins(event)
    cells["isEstimated"] = "true" if event.is_estimated else "false"
    cells["categories"] = LIST_SEPARATOR.join(cells.get("categories") or ())
    cells["coins"] = LIST_SEPARATOR.join([coin["slug"] for coin in cells["coins"]])
    return [cells[name] for name in EVENT_FIELDS]


def encode_rows(events: Iterable[Event]) -> bytes:
    """Return the rows of the events, without the header; None is an empty field."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(map(_row, events))
    return text.getvalue().encode()
