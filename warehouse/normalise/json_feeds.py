"""The pages of each feed as rows: lists, single look-ups, cancellations, deliveries.

`read_delivery_head` reads the head of a delivery alone, for the receiver.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from catalog.contract.bodies import DeliveryBody, ListBody, read_delivery_body, read_single_body
from catalog.contract.constants import WEBHOOK_MEANINGS
from warehouse import size_limits
from warehouse.codecs import (
    HtmlBody,
    UnreadableBody,
    decode_json,
    find_error_text,
    find_list,
    make_storable,
    storable_text,
)
from warehouse.landing.batches import LandedPage, Manifest
from warehouse.normalise.rows import BadRow, EventRows, match_columns, quote_raw, read_text
from warehouse.normalise.staging import RAW_MAX, BatchCounts, Sink

Pages = Iterable[tuple[LandedPage, bytes]]
MakeRow = Callable[[Any, int], dict[str, Any]]
_ID_BYTES: Final = 200
_KIND_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class DeliveryHead:
    """A receiver's record of a delivery beside its bytes. The texts can be stored anywhere."""

    delivery_id: str | None = None
    """None if the body has no id, or if its id is not a text of at most 200 bytes."""
    kind: str | None = None
    """The type as sent, of at most 80 characters; also an unknown type."""
    event_id: str | None = None
    why_unreadable: str | None = None
    """None if nothing is wrong with its form; the reader may still reject a field of the event."""


def read_lists(pages: Pages, make_row: MakeRow, sink: Sink, counts: BatchCounts) -> bool:
    """Read the rows of all pages; return whether the last one names a page after it."""
    empty, has_next = True, False
    for number, (page, body) in enumerate(pages, 1):
        empty = False
        try:
            if page.status != 200:
                raise UnreadableBody(f"status {page.status}")
            value, strict = decode_json(body)
            found = find_list(value)
        except UnreadableBody as error:
            counts.faults.append(f"page {number} is {error}")
            continue
        _note_form(found, body, strict, counts)
        has_next = found.cursor is not None
        for row in found.rows:
            _add(row if strict else _storable_or_none(row), make_row, sink, counts)
    if empty:
        counts.faults.append("the batch has no page")
    return has_next


def read_cancellations(pages: Pages, sink: Sink, counts: BatchCounts) -> None:
    """Read lists of `{"id", "cancelledAt"}`; other fields of a row are ignored."""
    read_lists(pages, _cancellation, sink, counts)


def read_look_ups(
    pages: Pages, manifest: Manifest, rows: EventRows, sink: Sink, counts: BatchCounts
) -> None:
    """Read answers about single events: 200, 410 (cancelled) and 404 (not found)."""
    empty = True
    for number, (page, body) in enumerate(pages, 1):
        empty = False
        value, strict = None, True
        try:
            value, strict = decode_json(body)
        except UnreadableBody as error:
            if page.status == 200 or isinstance(error, HtmlBody):
                counts.faults.append(f"page {number} (status {page.status}) is {error}")
                _refuse(body, str(error), sink, counts)
                continue
        if page.status == 200:
            event = read_single_body(value, key="id")
            if (words := find_error_text(event)) is not None and "id" not in event:
                counts.faults.append(f"page {number} is a JSON error: {words}")
            _add(event if strict else _storable_or_none(event), rows.row, sink, counts)
        elif page.status in (404, 410):
            answer = value if isinstance(value, dict) else {}
            _add((page.status, answer), _not_found_maker(manifest), sink, counts)
        else:
            counts.faults.append(f"page {number} was answered with status {page.status}")
            _refuse(body, f"status {page.status}", sink, counts)
    if empty:
        counts.faults.append("the batch has no page")


def read_deliveries(pages: Pages, rows: EventRows, sink: Sink, counts: BatchCounts) -> None:
    for page, body in pages:
        try:
            value, strict = decode_json(body)
        except UnreadableBody as error:
            _refuse(body, str(error), sink, counts)
            continue
        value = value if strict else _storable_or_none(value)
        delivery = read_delivery_body(value)
        kind = delivery.type if delivery is not None else None
        if isinstance(kind, str) and kind not in WEBHOOK_MEANINGS:
            counts.arrived += 1
            counts.ignored += 1
            counts.note(f"deliveries of an unknown type: {kind[:80]!a}")
            continue
        _add(value, _delivery_maker(delivery, page.received_at, rows), sink, counts)


def read_delivery_head(body: bytes) -> DeliveryHead:
    """Return the head of a delivery of any bytes; the reader rejects what is unreadable here."""
    try:
        value, strict = decode_json(body)
    except UnreadableBody as error:
        return DeliveryHead(why_unreadable=storable_text(str(error)))
    # As sent: as a storable text, NaN would be an id that two deliveries have in common.
    sent = read_delivery_body(value)
    delivery = sent if strict else read_delivery_body(_storable_or_none(value))
    if sent is None or delivery is None:
        why = f"expected an object, got {quote_raw(value)}"
        return DeliveryHead(why_unreadable=storable_text(why))
    event_id, unreadable = None, None
    try:
        if _meaning(delivery) is not None:
            event_id = _event_id(delivery.event)
    except BadRow as error:
        unreadable = storable_text(str(error))
    kind = delivery.type
    return DeliveryHead(
        delivery_id=sent.id if _is_id(sent.id) else None,
        kind=storable_text(kind[:_KIND_CHARS]) if isinstance(kind, str) else None,
        event_id=event_id,
        why_unreadable=unreadable,
    )


def _meaning(delivery: DeliveryBody) -> str | None:
    """Return what a delivery means, None if its type is not known."""
    if not isinstance(delivery.type, str):
        raise BadRow("type: expected the type of a delivery, but it is missing")
    return WEBHOOK_MEANINGS.get(delivery.type)


def _event_id(event: Any) -> str:
    """Raises BadRow: it is not an event, or has no id that can be stored."""
    if not isinstance(event, dict):
        raise BadRow(f"expected an object, got {quote_raw(event)}")
    if len(event) > size_limits.KEYS:
        raise BadRow(f"expected at most {size_limits.KEYS} fields, got {len(event)}")
    key = "id" if "id" in event else match_columns(tuple(event))[0].get("event_id", "id")
    text = read_text(event.get(key), "id")
    if text is None:
        raise BadRow("id: expected a text, but it is missing")
    if not _is_id(text):
        raise BadRow(f"id: expected a text of at most {_ID_BYTES} bytes, got {quote_raw(text)}")
    return text


def _is_id(value: Any) -> bool:
    """Whether a value is a text that can be stored without a change, and is not too long."""
    if not isinstance(value, str) or not value or len(value) > _ID_BYTES or "\0" in value:
        return False
    try:
        return len(value.encode()) <= _ID_BYTES
    except UnicodeEncodeError:
        return False


def _add(record: Any, make_row: MakeRow, sink: Sink, counts: BatchCounts) -> None:
    position = counts.arrived
    counts.arrived += 1
    try:
        sink.add(make_row(record, position))
    except BadRow as error:
        sink.reject(position, str(error), record)


def _refuse(body: bytes, reason: str, sink: Sink, counts: BatchCounts) -> None:
    head = body[: RAW_MAX + 1]
    sink.reject(counts.arrived, reason, head.decode("utf-8", "backslashreplace"))
    counts.arrived += 1


def _cancellation(row: Any, position: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadRow(f"expected an object, got {quote_raw(row)}")
    at = _read_cancelled_at(row)
    return {
        "place": position,
        "status": "cancelled",
        "shown": 0,
        "event_id": read_text(row.get("id"), "id"),
        "cancelled_text": at,
        "content_text": at,
    }


def _read_cancelled_at(row: dict[str, Any]) -> str | None:
    return read_text(row.get("cancelledAt", row.get("cancelled_at")), "cancelledAt")


def _not_found_maker(manifest: Manifest) -> MakeRow:
    def make_row(record: Any, position: int) -> dict[str, Any]:
        status, answer = record
        row = {
            "place": position,
            "status": "not_found",
            "shown": 0,
            "event_id": manifest.scope.event_id or read_text(answer.get("id"), "id"),
        }
        if status == 410:
            at = read_text(answer.get("cancelledAt"), "cancelledAt")
            row |= {"status": "cancelled", "cancelled_text": at or format_utc(manifest.content_at)}
        return row

    return make_row


def _delivery_maker(
    delivery: DeliveryBody | None, received_at: datetime | None, rows: EventRows
) -> MakeRow:
    def make_row(value: Any, position: int) -> dict[str, Any]:
        if delivery is None:
            raise BadRow(f"expected an object, got {quote_raw(value)}")
        meaning = _meaning(delivery)
        row = rows.row(delivery.event, position)
        receipt = None if received_at is None else format_utc(received_at)
        cancelled = None
        if meaning == "cancelled":
            cancelled = _read_cancelled_at(delivery.event)
        # The first that is stated counts, readable or not: with a later one in place of a time
        # that can't be read, old content would pass for new.
        row["content_text"] = (
            read_text(delivery.created_at, "createdAt of the delivery")
            or cancelled
            or row.get("updated_at")
            or read_text(delivery.delivered_at, "deliveredAt of the delivery")
            or receipt
        )
        if receipt is not None:
            row["observed_text"] = receipt
        if meaning == "cancelled":
            row |= {"status": "cancelled", "cancelled_text": cancelled or row["content_text"]}
        return row

    return make_row


def format_utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _storable_or_none(row: Any) -> Any:
    try:
        return make_storable(row)
    except RecursionError:
        return None


def _note_form(found: ListBody, body: bytes, strict: bool, counts: BatchCounts) -> None:
    if found.shape == "array":
        counts.note("a bare array")
    elif found.meta is None:
        counts.note("a list without meta")
    if not strict:
        bom = body.startswith(b"\xef\xbb\xbf")
        counts.note("BOM" if bom else "read by the tolerant reader: JSON that is not strict")
