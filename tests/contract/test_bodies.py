"""The forms of a JSON answer that a client accepts: lists, single records, and what is neither."""

from typing import Any

import pytest

from catalog.contract.bodies import is_wrapped, list_body, single_body, usage_fields

ROWS = [{"id": "a"}, "no object"]


@pytest.mark.parametrize(
    ("value", "shape", "meta"),
    [
        (ROWS, "array", None),
        ({"data": ROWS}, "data", None),
        ({"data": ROWS, "meta": {"total": 2}}, "data", {"total": 2}),
        ({"data": ROWS, "meta": None}, "data", {}),
        ({"data": ROWS, "meta": "two"}, "data", {}),
        ({"data": ROWS, "error": "none"}, "data", None),
    ],
)
def test_a_list_is_a_bare_array_or_in_data(value: Any, shape: str, meta: Any) -> None:
    found = list_body(value)
    assert found is not None
    assert (found.rows, found.shape, found.meta) == (ROWS, shape, meta)


@pytest.mark.parametrize(
    ("value", "cursor", "total"),
    [
        ({"data": ROWS, "meta": {"cursor": "a", "total": 9}}, "a", 9),
        ({"data": ROWS, "meta": {"cursor": "a", "nextCursor": "b"}}, "b", None),
        ({"data": ROWS, "meta": {"cursor": "a", "next_cursor": None}}, None, None),
        ({"items": ROWS, "nextCursor": "b", "totalCount": 9}, "b", 9),
        ({"results": ROWS, "pagination": {"next": "/v2/events?limit=2&cursor=b%3D"}}, "b=", None),
        ({"data": ROWS}, None, None),
        (ROWS, None, None),
    ],
)
def test_cursor_and_total_are_found_in_other_places(value: Any, cursor: Any, total: Any) -> None:
    found = list_body(value)
    assert found is not None
    assert (found.rows, found.cursor, found.total) == (ROWS, cursor, total)


def test_an_event_is_not_a_list_of_its_coins() -> None:
    assert list_body({"id": "a", "coins": ROWS, "categories": ["Fork"]}) is None


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({"plan": "pro", "used": 1, "limit": None}, {"plan": "pro", "used": 1, "limit": None}),
        ({"tier": {"name": "pro"}, "requests_used": 1}, {"plan": "pro", "used": 1}),
        ({"requests": {"used": 1, "quota": 9}, "periodEnd": "x"}, {"used": 1, "limit": 9}),
        ({"billingPeriod": {"from": "a", "to": "b"}}, {"period": {"start": "a", "end": "b"}}),
        ({"note": "a"}, {}),
    ],
)
def test_a_usage_is_read_by_other_names(content: Any, fields: Any) -> None:
    assert usage_fields(content).items() >= fields.items()


@pytest.mark.parametrize(
    "value", [None, "text", 1, {}, {"data": None}, {"data": {"id": "a"}}, {"rows": ROWS}]
)
def test_anything_else_is_not_a_list(value: Any) -> None:
    assert list_body(value) is None


def test_a_single_record_is_bare_or_in_data() -> None:
    assert single_body({"id": "a"}, key="id") == {"id": "a"}
    assert single_body({"data": {"id": "a"}}, key="id") == {"id": "a"}
    assert single_body({"data": ROWS}, key="id") == {"data": ROWS}
    assert single_body("text", key="id") == "text"


def test_a_record_with_a_key_of_its_own_keeps_its_field_data() -> None:
    record = {"id": "a", "data": {"id": "b"}}
    assert single_body(record, key="id") == record
    assert single_body(record) == {"id": "b"}
    assert is_wrapped(record)
