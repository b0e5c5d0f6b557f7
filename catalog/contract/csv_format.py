"""The CSV form of the export: RFC 4180, UTF-8, columns named as the Event fields (decisions)."""

import csv
import io
from collections.abc import Iterable
from datetime import datetime

from msgspec import UNSET

from catalog.contract.records import EVENT_FIELDS, Event

LIST_SEPARATOR = ";"
HEADER = (",".join(EVENT_FIELDS) + "\r\n").encode()


def instant_text(instant: datetime) -> str:
    """Return `<YYYY-MM-DD>T<HH:MM:SS>Z` (interface section 1)."""
    # Half the time of strftime, which is most of a row's.
    return f"{instant.isoformat()[:19]}Z"


def _optional(instant: datetime | None) -> str | None:
    return None if instant is None else instant_text(instant)


def _row(event: Event) -> tuple[object, ...]:
    categories = () if event.categories is UNSET else event.categories
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
        instant_text(event.created_at),
        instant_text(event.updated_at),
    )


def encode_rows(events: Iterable[Event]) -> bytes:
    """Return the rows of the events, without the header; None is an empty field."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(map(_row, events))
    return text.getvalue().encode()
