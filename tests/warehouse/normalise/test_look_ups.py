"""Single look-ups and cancellations as typed rows."""

from datetime import UTC, datetime

import pytest

from tests.warehouse.normalise.catalog_bodies import (
    AT,
    BEFORE,
    BatchReader,
    json_body,
    json_event,
    page,
)


def test_a_single_event_is_read_bare_or_wrapped(batches: BatchReader) -> None:
    for body in (json_event(), {"data": json_event()}):
        assert batches.read("event", json_body(body), event_id="e1").good == 1
        assert batches.only_row()["status"] == "scheduled"


def test_a_410_is_a_cancellation_at_its_own_or_the_content_time(batches: BatchReader) -> None:
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
