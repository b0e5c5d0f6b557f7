"""Single look-ups, cancellations and deliveries as typed rows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.warehouse.normalise.catalog_bodies import AT, BEFORE, Shelf, json_body, json_event, page


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture
def shelf(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> Shelf:
    return Shelf(tmp_path, connection)


def test_a_single_event_is_read_bare_or_wrapped(shelf: Shelf) -> None:
    for body in (json_event(), {"data": json_event()}):
        assert shelf.read("event", json_body(body), event_id="e1").good == 1
        assert shelf.only_row()["status"] == "scheduled"


def test_gone_is_a_cancellation_as_of_its_time_or_that_of_the_look(shelf: Shelf) -> None:
    body = json_body({"error": {}, "id": "e1", "cancelledAt": "2026-02-03T00:00:00Z"})
    shelf.read("event", body, status=410, event_id="e1")
    row = shelf.only_row()
    assert (row["event_id"], row["status"], row["shown"]) == ("e1", "cancelled", 0)
    assert row["cancelled_at"] == datetime(2026, 2, 3, tzinfo=UTC)
    assert row["content_at"] == BEFORE
    shelf.read("event", b"", status=410, event_id="e2")
    assert (shelf.only_row()["event_id"], shelf.only_row()["cancelled_at"]) == ("e2", BEFORE)


def test_not_found_says_so_unless_a_web_page_answered(shelf: Shelf) -> None:
    for body in (b'{"message":"Not Found"}', b"Not Found", b""):
        shelf.read("event", body, status=404, event_id="e1")
        row = shelf.only_row()
        assert (row["event_id"], row["status"], row["shown"]) == ("e1", "not_found", 0)
    read = shelf.read("event", b"<html>404</html>", status=404, event_id="e1")
    assert "HTML" in str(read.quarantine)
    assert (read.arrived, read.rejected) == (1, 1)


@pytest.mark.parametrize(
    ("body", "status"), [(b"<p>", 200), (b'{"message":"Forbidden"}', 200), (b"{}", 500)]
)
def test_no_answer_about_an_event_is_a_quarantine(shelf: Shelf, body: bytes, status: int) -> None:
    read = shelf.read("event", body, status=status, event_id="e1")
    assert (read.arrived, read.good, read.rejected) == (1, 0, 1)
    assert read.quarantine is not None


def test_cancellations_are_true_as_of_their_own_time(shelf: Shelf) -> None:
    body = page(
        {"id": "a", "cancelledAt": "2026-02-03T00:00:00Z", "title": "left"},
        {"id": "b"},
        {"id": "c", "cancelledAt": "soon"},
        {"cancelledAt": "2026-02-03T00:00:00Z"},
    )
    read = shelf.read("cancellations", body)
    row = shelf.only_row()
    assert (row["event_id"], row["status"], row["shown"]) == ("a", "cancelled", 0)
    assert row["content_at"] == row["cancelled_at"] == datetime(2026, 2, 3, tzinfo=UTC)
    assert row["observed_at"] == AT
    assert row["title"] is row["extra"] is None
    assert (read.arrived, read.rejected) == (4, 3)
    assert [reason for _, reason, _ in shelf.rejected()] == [
        "cancelledAt: expected an instant, met nothing",
        "cancelledAt: expected an instant, met 'soon'",
        "id: expected a text, met nothing",
    ]


def delivery(kind: Any = "event.updated", **changes: Any) -> bytes:
    body: dict[str, Any] = {"id": "d1", "type": kind, "createdAt": "2026-03-01T00:00:00Z"}
    return json_body(body | {"data": json_event()} | changes)


def test_a_delivery_has_its_own_receipt_and_content_time(shelf: Shelf) -> None:
    receipt = datetime(2026, 3, 2, 0, 0, 7, 500, tzinfo=UTC)
    shelf.read("deliveries", delivery(), received_at=receipt)
    row = shelf.only_row()
    assert row["observed_at"] == receipt
    assert row["content_at"] == datetime(2026, 3, 1, tzinfo=UTC)
    assert row["status"] == "scheduled"
    shelf.read("deliveries", delivery(id="d2"))
    assert shelf.only_row()["observed_at"] == AT


def test_a_cancelled_delivery_is_cancelled_at_its_word_or_its_creation(shelf: Shelf) -> None:
    body = json_event(cancelledAt="2026-02-28T00:00:00Z")
    shelf.read("deliveries", [delivery("event.cancelled", data=body), delivery("event.cancelled")])
    first, second = shelf.seen()
    assert first["cancelled_at"] == datetime(2026, 2, 28, tzinfo=UTC)
    assert second["cancelled_at"] == datetime(2026, 3, 1, tzinfo=UTC)
    assert {first["status"], second["status"]} == {"cancelled"}
    assert first["extra"] is None


def test_deliveries_of_an_unknown_type_are_counted_and_not_applied(shelf: Shelf) -> None:
    read = shelf.read("deliveries", [delivery("event.starred"), delivery(), delivery()])
    assert (read.arrived, read.good, read.ignored, read.duplicates) == (3, 2, 1, 1)
    assert [row["position"] for row in shelf.seen()] == [1, 2]
    assert read.quarantine is None


BAD_DELIVERIES = [
    (b"", "an empty body"),
    (b"<html>", "an HTML page"),
    (b"{", "no JSON"),
    (b"[]", "expected an object"),
    (delivery(None), "type: expected the type"),
    (delivery(data=None), "expected an object, met 'null'"),
    (delivery(createdAt=None), "createdAt of the delivery: expected an instant, met nothing"),
    (delivery(createdAt="soon"), "createdAt of the delivery: expected an instant, met 'soon'"),
]


@pytest.mark.parametrize(("body", "reason"), BAD_DELIVERIES)
def test_a_delivery_that_cannot_be_read_is_one_rejected_row(
    shelf: Shelf, body: bytes, reason: str
) -> None:
    read = shelf.read("deliveries", [delivery(), body])
    assert (read.arrived, read.good, read.rejected, read.quarantine) == (2, 1, 1, None)
    ((position, words, _),) = shelf.rejected()
    assert position == 1
    assert words.startswith(reason)
