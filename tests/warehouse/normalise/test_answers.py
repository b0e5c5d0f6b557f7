"""Single look-ups, cancellations and deliveries as typed rows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.warehouse.normalise.catalog_bodies import (
    AT,
    BEFORE,
    BatchReader,
    json_body,
    json_event,
    page,
)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture
def batches(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> BatchReader:
    return BatchReader(tmp_path, connection)


def test_a_single_event_is_read_bare_or_wrapped(batches: BatchReader) -> None:
    for body in (json_event(), {"data": json_event()}):
        assert batches.read("event", json_body(body), event_id="e1").good == 1
        assert batches.only_row()["status"] == "scheduled"


def test_a_410_is_a_cancellation_at_its_own_time_or_at_the_content_time(
    batches: BatchReader,
) -> None:
    body = json_body({"error": {}, "id": "e1", "cancelledAt": "2026-02-03T00:00:00Z"})
    batches.read("event", body, status=410, event_id="e1")
    row = batches.only_row()
    assert (row["event_id"], row["status"], row["shown"]) == ("e1", "cancelled", 0)
    assert row["cancelled_at"] == datetime(2026, 2, 3, tzinfo=UTC)
    assert row["content_at"] == BEFORE
    batches.read("event", b"", status=410, event_id="e2")
    assert (batches.only_row()["event_id"], batches.only_row()["cancelled_at"]) == ("e2", BEFORE)


def test_a_404_is_not_found_unless_its_body_is_html(batches: BatchReader) -> None:
    for body in (b'{"message":"Not Found"}', b"Not Found", b""):
        batches.read("event", body, status=404, event_id="e1")
        row = batches.only_row()
        assert (row["event_id"], row["status"], row["shown"]) == ("e1", "not_found", 0)
    read = batches.read("event", b"<html>404</html>", status=404, event_id="e1")
    assert "HTML" in str(read.quarantine)
    assert (read.arrived, read.rejected) == (1, 1)


@pytest.mark.parametrize(
    ("body", "status"), [(b"<p>", 200), (b'{"message":"Forbidden"}', 200), (b"{}", 500)]
)
def test_a_body_that_is_not_an_event_quarantines_the_batch(
    batches: BatchReader, body: bytes, status: int
) -> None:
    read = batches.read("event", body, status=status, event_id="e1")
    assert (read.arrived, read.good, read.rejected) == (1, 0, 1)
    assert read.quarantine is not None


def test_cancellations_have_their_own_content_time(batches: BatchReader) -> None:
    body = page(
        {"id": "a", "cancelledAt": "2026-02-03T00:00:00Z", "title": "left"},
        {"id": "b"},
        {"id": "c", "cancelledAt": "soon"},
        {"cancelledAt": "2026-02-03T00:00:00Z"},
    )
    read = batches.read("cancellations", body)
    row = batches.only_row()
    assert (row["event_id"], row["status"], row["shown"]) == ("a", "cancelled", 0)
    assert row["content_at"] == row["cancelled_at"] == datetime(2026, 2, 3, tzinfo=UTC)
    assert row["observed_at"] == AT
    assert row["title"] is row["extra"] is None
    assert (read.arrived, read.rejected) == (4, 3)
    assert [reason for _, reason, _ in batches.rejected()] == [
        "cancelledAt: expected an instant, but it is missing",
        "cancelledAt: expected an instant, got 'soon'",
        "id: expected a text, but it is missing",
    ]


def delivery(kind: Any = "event.updated", **changes: Any) -> bytes:
    body: dict[str, Any] = {"id": "d1", "type": kind, "createdAt": "2026-03-01T00:00:00Z"}
    return json_body(body | {"data": json_event()} | changes)


def test_a_delivery_has_its_own_receipt_and_content_time(batches: BatchReader) -> None:
    receipt = datetime(2026, 3, 2, 0, 0, 7, 500, tzinfo=UTC)
    batches.read("deliveries", delivery(), received_at=receipt)
    row = batches.only_row()
    assert row["observed_at"] == receipt
    assert row["content_at"] == datetime(2026, 3, 1, tzinfo=UTC)
    assert row["status"] == "scheduled"
    batches.read("deliveries", delivery(id="d2"))
    assert batches.only_row()["observed_at"] == AT


def documented(kind: str, data: dict[str, Any], **changes: Any) -> bytes:
    """A delivery of the documented form, which has no `createdAt`."""
    body = {
        "id": "evt_dlv_1",
        "type": kind,
        "apiVersion": "2025-10-01",
        "deliveredAt": "2026-03-01T04:00:00Z",
        "data": data,
    }
    return json_body(body | changes)


def test_the_content_time_of_a_documented_delivery_is_that_of_its_event(
    batches: BatchReader,
) -> None:
    updated = json_event(updatedAt="2026-02-27T00:00:00Z")
    cancelled = updated | {"cancelledAt": "2026-02-28T00:00:00Z"}
    bodies = [
        documented("events.high-impact", updated),
        documented("events.cancelled", cancelled),
        documented("events.updated", json_event(updatedAt=None)),
        documented("events.updated", json_event(updatedAt=None), deliveredAt=None),
    ]
    receipt = datetime(2026, 3, 2, 5, tzinfo=UTC)
    batches.read("deliveries", bodies, received_at=receipt)
    rows = batches.seen()
    assert sorted(row["content_at"] for row in rows) == [
        datetime(2026, 2, 27, tzinfo=UTC),
        datetime(2026, 2, 28, tzinfo=UTC),
        datetime(2026, 3, 1, 4, tzinfo=UTC),
        receipt,
    ]
    assert [row["status"] for row in rows].count("cancelled") == 1


def test_a_cancellation_delivery_has_its_own_cancellation_time_or_its_creation_time(
    batches: BatchReader,
) -> None:
    body = json_event(cancelledAt="2026-02-28T00:00:00Z")
    batches.read(
        "deliveries", [delivery("event.cancelled", data=body), delivery("event.cancelled")]
    )
    first, second = batches.seen()
    assert first["cancelled_at"] == datetime(2026, 2, 28, tzinfo=UTC)
    assert second["cancelled_at"] == datetime(2026, 3, 1, tzinfo=UTC)
    assert {first["status"], second["status"]} == {"cancelled"}
    assert first["extra"] is None


def test_deliveries_of_an_unknown_type_are_counted_and_not_applied(batches: BatchReader) -> None:
    read = batches.read("deliveries", [delivery("event.starred"), delivery(), delivery()])
    assert (read.arrived, read.good, read.ignored, read.duplicates) == (3, 2, 1, 1)
    assert [row["position"] for row in batches.seen()] == [1, 2]
    assert read.quarantine is None


BAD_DELIVERIES = [
    (b"", "an empty body"),
    (b"<html>", "an HTML page"),
    (b"{", "no JSON"),
    (b"[]", "expected an object"),
    (delivery(None), "type: expected the type"),
    (delivery(data=None), "expected an object, got 'null'"),
    (delivery(createdAt="soon"), "time of the delivery: expected an instant, got 'soon'"),
]


@pytest.mark.parametrize(("body", "reason"), BAD_DELIVERIES)
def test_a_delivery_that_cannot_be_read_is_one_rejected_row(
    batches: BatchReader, body: bytes, reason: str
) -> None:
    read = batches.read("deliveries", [delivery(), body])
    assert (read.arrived, read.good, read.rejected, read.quarantine) == (2, 1, 1, None)
    ((position, words, _),) = batches.rejected()
    assert position == 1
    assert words.startswith(reason)
