"""The pages of each feed as rows: lists, single look-ups, cancellations, deliveries.

Belongs here: the form of a feed's pages, and what its rows contain besides the event. Does not:
the fields of an event (json_rows.py).
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from catalog.contract.bodies import ListBody, single_body
from catalog.contract.decisions import WEBHOOK_MEANINGS
from warehouse.landing.batches import LandedPage, Manifest
from warehouse.normalise.json_rows import EventRows
from warehouse.normalise.payloads import HtmlBody, Unreadable, decoded, error_words, list_in
from warehouse.normalise.sink import RAW_MAX, BatchCounts, Sink
from warehouse.normalise.values import BadRow, shown_raw, storable, text_of

Pages = Iterable[tuple[LandedPage, bytes]]
MakeRow = Callable[[Any, int], dict[str, Any]]


def read_lists(pages: Pages, make_row: MakeRow, sink: Sink, counts: BatchCounts) -> None:
    """Read pages that each hold a list."""
    empty = True
    for number, (page, body) in enumerate(pages, 1):
        empty = False
        try:
            if page.status != 200:
                raise Unreadable(f"status {page.status}")
            value, strict = decoded(body)
            found = list_in(value)
        except Unreadable as error:
            counts.faults.append(f"page {number} is {error}")
            continue
        _note_form(found, body, strict, counts)
        for row in found.rows:
            _add(row if strict else _storable_or_none(row), make_row, sink, counts)
    if empty:
        counts.faults.append("the batch has no page")


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
            value, strict = decoded(body)
        except Unreadable as error:
            if page.status == 200 or isinstance(error, HtmlBody):
                counts.faults.append(f"page {number} (status {page.status}) is {error}")
                _refuse(body, str(error), sink, counts)
                continue
        if page.status == 200:
            event = single_body(value, key="id")
            if (words := error_words(event)) is not None and "id" not in event:
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
    """Read webhook bodies, one for each page."""
    for page, body in pages:
        try:
            value, strict = decoded(body)
        except Unreadable as error:
            _refuse(body, str(error), sink, counts)
            continue
        value = value if strict else _storable_or_none(value)
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind not in WEBHOOK_MEANINGS:
            counts.arrived += 1
            counts.ignored += 1
            counts.note(f"deliveries of an unknown type: {kind[:80]!a}")
            continue
        _add((value, page.received_at), _delivery_maker(rows), sink, counts)


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
        raise BadRow(f"expected an object, got {shown_raw(row)}")
    at = text_of(row.get("cancelledAt", row.get("cancelled_at")), "cancelledAt")
    return {
        "place": position,
        "status": "cancelled",
        "shown": 0,
        "event_id": text_of(row.get("id"), "id"),
        "cancelled_text": at,
        "content_text": at,
    }


def _not_found_maker(manifest: Manifest) -> MakeRow:
    def make_row(record: Any, position: int) -> dict[str, Any]:
        status, answer = record
        row = {
            "place": position,
            "status": "not_found",
            "shown": 0,
            "event_id": manifest.scope.event_id or text_of(answer.get("id"), "id"),
        }
        if status == 410:
            at = text_of(answer.get("cancelledAt"), "cancelledAt")
            row |= {"status": "cancelled", "cancelled_text": at or instant(manifest.content_at)}
        return row

    return make_row


def _delivery_maker(rows: EventRows) -> MakeRow:
    def make_row(record: Any, position: int) -> dict[str, Any]:
        value, received_at = record
        if not isinstance(value, dict):
            raise BadRow(f"expected an object, got {shown_raw(value)}")
        if not isinstance(value.get("type"), str):
            raise BadRow("type: expected the type of a delivery, but it is missing")
        event: Any = value.get("data")
        row = rows.row(event, position)
        at = _content_time(value, event)
        if received_at is not None:
            row["observed_text"] = instant(received_at)
            at = at or instant(received_at)
        row["content_text"] = at
        if WEBHOOK_MEANINGS[value["type"]] == "cancelled":
            cancelled = text_of(event.get("cancelledAt"), "cancelledAt")
            row |= {"status": "cancelled", "cancelled_text": cancelled or at}
        return row

    return make_row


def _content_time(delivery: dict[str, Any], event: dict[str, Any]) -> str | None:
    """Return when the content of a delivery was true, as far as it says (decisions)."""
    stated = (
        (delivery.get("createdAt"), "createdAt of the delivery"),
        (event.get("cancelledAt"), "cancelledAt"),
        (event.get("updatedAt"), "updatedAt"),
        (delivery.get("deliveredAt"), "deliveredAt of the delivery"),
    )
    return next((at for value, name in stated if (at := text_of(value, name)) is not None), None)


def instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _storable_or_none(row: Any) -> Any:
    try:
        return storable(row)
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
