"""The records as they are sent: types, JSON names, the CSV form of the export (interface 2, 4.8).

Fields are in the order of the JSON. An `Event` here is what one plan shows: hidden fields are None,
and `categories` is UNSET (the key is left out) on Free. The CSV follows RFC 4180, in UTF-8.
"""

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

RecordT = TypeVar("RecordT")


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A frozen record whose JSON names are camelCase."""


class EventCoin(Record, frozen=True):
    """A linked coin. The slug identifies it; the symbol does not."""

    slug: str
    symbol: str
    name: str


class Event(Record, frozen=True, kw_only=True):
    """One dated event. When `is_estimated`, `date` is a deadline and is never shown to people."""

    id: str
    slug: str | None
    title: str
    description: str | None
    displayed_date: str
    date: datetime
    date_end: datetime | None
    date_type: str
    is_estimated: bool
    categories: tuple[str, ...] | UnsetType | None = UNSET
    coins: tuple[EventCoin, ...] = ()
    impact: float | str | None = None
    impact_summary: str | None = None
    source_url: str | None = None
    snapshot_url: str | None = None
    last_verified_at: datetime | None = None
    created_at: datetime | None
    updated_at: datetime | None


class CancelledEvent(Event, frozen=True, kw_only=True):
    """The payload of an `events.cancelled` delivery."""

    cancelled_at: datetime


class Coin(Record, frozen=True):
    """One coin with its counters inside the requester's window (interface 2.1)."""

    slug: str
    symbol: str
    name: str
    rank: int | None
    tracked: bool
    icon_url: str
    upcoming_count: int
    major_count: int | None
    peak_impact: float | None


class Category(Record, frozen=True):
    """One editorial category; `id` is the value of the `categories` filter."""

    id: str
    name: str


class Cancellation(Record, frozen=True):
    """One cancelled event."""

    id: str
    cancelled_at: datetime


class Period(Record, frozen=True):
    """A quota month: start inclusive, end exclusive."""

    start: datetime
    end: datetime


class Usage(Record, frozen=True):
    """The usage of a key in its month. `limit` and `remaining` are None if there is no quota."""

    plan: str
    period: Period
    used: int
    limit: int | None
    remaining: int | None
    reset_at: datetime
    rate: float
    burst: int


class PaginationMeta(Record, frozen=True):
    """The `meta` of a list (interface 2.2)."""

    total: int
    limit: int
    cursor: str | None


class Page(Record, Generic[RecordT], frozen=True):
    """The wrapper of every list (interface section 1)."""

    data: tuple[RecordT, ...]
    meta: PaginationMeta


class Delivery(Record, frozen=True):
    """The body of a webhook, the same at every attempt."""

    id: str
    type: str
    api_version: str
    delivered_at: datetime
    """When it was put into the outbox, by the catalog's clock."""
    data: Event
    created_at: datetime | UnsetType = UNSET
    """When the server learned of the change, if that was after the change."""


EVENT_FIELDS: tuple[str, ...] = tuple(field.encode_name for field in msgspec.structs.fields(Event))
"""Names of the Event fields in JSON, in order; also the columns of the export."""


LIST_SEPARATOR = ";"
HEADER = (",".join(EVENT_FIELDS) + "\r\n").encode()


def instant_text(instant: datetime) -> str:
    """Return `<YYYY-MM-DD>T<HH:MM:SS>Z` (interface section 1)."""
    # Half the time of strftime, which is most of a row's.
    return f"{instant.isoformat()[:19]}Z"


def _optional(instant: datetime | None) -> str | None:
    return None if instant is None else instant_text(instant)


def _row(event: Event) -> tuple[object, ...]:
    categories = () if event.categories is UNSET else event.categories or ()
    return (
        event.id,
        event.slug,
        event.title,
        event.description,
        event.displayed_date,
        instant_text(event.date),
        _optional(event.date_end),
        event.date_type,
        "true" if event.is_estimated else "false",
        LIST_SEPARATOR.join(categories),
        LIST_SEPARATOR.join(coin.slug for coin in event.coins),
        event.impact,
        event.impact_summary,
        event.source_url,
        event.snapshot_url,
        _optional(event.last_verified_at),
        _optional(event.created_at),
        _optional(event.updated_at),
    )


def encode_rows(events: Iterable[Event]) -> bytes:
    """Return the rows of the events, without the header; None is an empty field."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(map(_row, events))
    return text.getvalue().encode()
