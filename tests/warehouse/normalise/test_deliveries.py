"""Deliveries of every form: their rows, and their heads, which are read from any bytes."""

import json
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.normalise.catalog_bodies import AT, BEFORE, BatchReader, json_event
from warehouse.normalise.json_feeds import DeliveryHead, read_delivery_head


def body_of(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_an_event_under_data_leaves_the_delivery_its_own_id() -> None:
    body = body_of(id="evt_dlv_1", type="events.updated", data=json_event(id="e1"))
    assert read_delivery_head(body) == DeliveryHead("evt_dlv_1", "events.updated", "e1")


@pytest.mark.parametrize(
    "body",
    [
        body_of(type="event.updated", **json_event(id="e1")),
        body_of(id="e1", type="event.updated", data=json_event(id="e1")),
    ],
    ids=["at the top level", "both ids are the same"],
)
def test_the_id_of_an_event_is_never_that_of_its_delivery(body: bytes) -> None:
    assert read_delivery_head(body) == DeliveryHead(None, "event.updated", "e1")


@pytest.mark.parametrize(
    "own_id", ["", "x" * 201, "é" * 101, "a\0b", "\ud800", 5, True, None, ["a"], float("nan")]
)
def test_an_id_that_cannot_be_stored_as_it_is_counts_as_none(own_id: Any) -> None:
    head = read_delivery_head(body_of(id=own_id, type="events.updated", data=json_event(id="e1")))
    assert (head.delivery_id, head.event_id, head.why_unreadable) == (None, "e1", None)


def test_an_unknown_type_is_readable_and_needs_no_event() -> None:
    assert read_delivery_head(b'{"id":"d1","type":"ping","data":{}}') == DeliveryHead("d1", "ping")
    assert read_delivery_head(b'{"type":"ping"}') == DeliveryHead(None, "ping")
    long = read_delivery_head(body_of(id="d1", type="x" * 10_000, data=None))
    assert long == DeliveryHead("d1", "x" * 80)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "an empty body"),
        (b"<html>", "an HTML page"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\x1f\x8b\x00", "a gzip body that is cut off"),
        (b"[]", "expected an object, got '[]'"),
        (b"{}", "type: expected the type of a delivery"),
        (body_of(type=["x"]), "type: expected the type of a delivery"),
        (body_of(type="event.updated", data=None), "expected an object, got 'null'"),
        (body_of(type="event.updated", data={}), "id: expected a text, but it is missing"),
        (body_of(type="event.updated", data={"id": "x" * 201}), "id: expected a text of at most"),
        (body_of(type="event.updated", data={"id": {}}), "id: expected a text, got"),
        (body_of(type="event.updated", data=dict.fromkeys(map(str, range(1_001)))), "expected at"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_wrong_with_the_form_is_stated(body: bytes, why: str) -> None:
    assert str(read_delivery_head(body).why_unreadable).startswith(why)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "id": _JSON,
        "type": st.sampled_from(["event.created", "events.high-impact"]) | _JSON,
        "data": _JSON | st.fixed_dictionaries({"id": _JSON}),
    },
)


def wrapped(**fields: Any) -> bytes:
    """A delivery with its event under `data`."""
    own = {name: fields.pop(name) for name in ("createdAt", "deliveredAt") if name in fields}
    kind = fields.pop("type", "events.updated")
    return body_of(id="d1", type=kind, apiVersion="2025-10-01", **own, data=json_event(**fields))


def bare(**fields: Any) -> bytes:
    """A delivery that is its event, with a type."""
    return body_of(**{"type": "event.updated", "apiVersion": "2025-10-01", **json_event(**fields)})


def on(day: int) -> str:
    return f"2026-02-{day:02}T00:00:00Z"


RECEIPT = datetime(2026, 3, 2, 1, 2, 3, 456_000, tzinfo=UTC)
CANCELLED = "events.cancelled"
TIMES: list[tuple[str, bytes, int | None]] = [
    ("createdAt", wrapped(createdAt=on(9), updatedAt=on(7), deliveredAt=on(8)), 9),
    ("updatedAt", wrapped(updatedAt=on(7), deliveredAt=on(8)), 7),
    ("deliveredAt", wrapped(updatedAt=None, deliveredAt=on(8)), 8),
    ("empty texts", wrapped(createdAt=" ", updatedAt="", deliveredAt=on(8)), 8),
    ("receipt", wrapped(updatedAt=None), None),
    ("cancelledAt", wrapped(type=CANCELLED, cancelledAt=on(6), updatedAt=on(7)), 6),
    ("cancelledAt, other name", wrapped(type=CANCELLED, cancelled_at=on(6), updatedAt=on(7)), 6),
    ("no cancelledAt", wrapped(type=CANCELLED, updatedAt=on(7)), 7),
    ("a cancellation before", wrapped(cancelledAt=on(6), updatedAt=on(7)), 7),
    (
        "other names",
        wrapped(updatedAt=on(7), deliveredAt=on(8)).replace(b"updatedAt", b"updated_at"),
        7,
    ),
    ("top level", bare(createdAt=on(9), updatedAt=on(7), deliveredAt=on(8)), 7),
    ("top level, deliveredAt", bare(createdAt=on(9), updatedAt=None, deliveredAt=on(8)), 8),
    ("top level, receipt", bare(createdAt=on(9), updatedAt=None), None),
    ("top level, cancelledAt", bare(type=CANCELLED, cancelledAt=on(6), updatedAt=on(7)), 6),
    ("in the future", wrapped(createdAt="2027-01-01T00:00:00Z"), None),
]


@pytest.mark.parametrize(("body", "day"), [case[1:] for case in TIMES], ids=[c[0] for c in TIMES])
def test_the_content_time_is_the_first_that_the_delivery_states(
    batches: BatchReader, body: bytes, day: int | None
) -> None:
    assert batches.read("deliveries", body, received_at=RECEIPT).rejected == 0
    row = batches.only_row()
    assert row["observed_at"] == RECEIPT
    assert row["content_at"] == (RECEIPT if day is None else datetime(2026, 2, day, tzinfo=UTC))
    is_cancelled = json.loads(body)["type"] == CANCELLED
    assert row["status"] == ("cancelled" if is_cancelled else "scheduled")
    assert row["cancelled_at"] == (row["content_at"] if is_cancelled else None)


def test_a_delivery_without_any_time_is_as_of_its_batch(batches: BatchReader) -> None:
    batches.read("deliveries", wrapped(updatedAt=None))
    row = batches.only_row()
    assert (row["observed_at"], row["content_at"]) == (AT, BEFORE)


def test_fields_of_the_delivery_are_not_fields_of_its_event(batches: BatchReader) -> None:
    batches.read("deliveries", bare(deliveredAt=on(8), mood="new"), received_at=RECEIPT)
    assert batches.only_row()["extra"] == '{"mood":"new"}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (wrapped(createdAt="soon"), "time of the delivery: expected an instant, got 'soon'"),
        (wrapped(createdAt=["x"]), "createdAt of the delivery: expected a text"),
        (wrapped(updatedAt="soon", deliveredAt=on(8)), "time of the delivery: expected an instant"),
        (wrapped(updatedAt=None, deliveredAt="soon"), "time of the delivery: expected an instant"),
        (
            wrapped(type=CANCELLED, cancelledAt="soon", updatedAt=on(7)),
            "cancelledAt: expected an instant, got 'soon'",
        ),
        (bare(createdAt="soon"), "createdAt: expected an instant of 1900 to 2200, got 'soon'"),
        (bare(id=None), "id: expected a text, but it is missing"),
        (body_of(type="events.updated"), "id: expected a text, but it is missing"),
    ],
)
def test_an_unreadable_time_is_a_reject_and_is_not_replaced_by_another(
    batches: BatchReader, body: bytes, reason: str
) -> None:
    read = batches.read("deliveries", body, received_at=RECEIPT)
    assert (read.arrived, read.good, read.rejected, read.quarantine) == (1, 0, 1, None)
    assert batches.rejected()[0][1].startswith(reason)


def delivery(kind: Any = "event.updated", **changes: Any) -> bytes:
    body = {"id": "d1", "type": kind, "createdAt": "2026-03-01T00:00:00Z", "data": json_event()}
    return body_of(**body | changes)


def test_deliveries_of_an_unknown_type_are_counted_and_not_applied(batches: BatchReader) -> None:
    read = batches.read("deliveries", [delivery("event.starred"), delivery(), delivery()])
    assert (read.arrived, read.good, read.ignored, read.duplicates) == (3, 2, 1, 1)
    assert [row["position"] for row in batches.seen()] == [1, 2]
    assert read.quarantine is None


@given(envelope=_ENVELOPES)
def test_the_reader_rejects_what_the_head_finds_unreadable(
    connection: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
    envelope: dict[str, Any],
) -> None:
    batches = BatchReader(tmp_path_factory.mktemp("landing"), connection)
    body = json.dumps(envelope).encode()
    head, read = read_delivery_head(body), batches.read("deliveries", body)
    if head.why_unreadable is not None:
        assert read.rejected == 1
    if read.ignored:
        assert head.why_unreadable is None
