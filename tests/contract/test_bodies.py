"""The forms of a JSON answer that a client accepts: lists, single records, and what is neither."""

from typing import Any

import pytest

from catalog.contract.bodies import list_body, single_body, usage_fields

ROWS = [{"id": "a"}, "no object"]


@pytest.mark.parametrize(
    ("value", "meta", "cursor", "total"),
    [
        (ROWS, None, None, None),
        ({"data": ROWS}, None, None, None),
        ({"data": ROWS, "meta": {"total": 2}}, {"total": 2}, None, 2),
        ({"data": ROWS, "meta": None}, {}, None, None),
        ({"data": ROWS, "meta": "two"}, {}, None, None),
        ({"data": ROWS, "error": "none"}, None, None, None),
        ({"data": ROWS, "meta": {"cursor": "a", "nextCursor": "b"}}, ..., "b", None),
        ({"data": ROWS, "meta": {"cursor": "a", "next_cursor": None}}, ..., None, None),
        ({"items": ROWS, "nextCursor": "b", "totalCount": 9}, ..., "b", 9),
        ({"results": ROWS, "pagination": {"next": "/v2?limit=2&cursor=b%3D"}}, ..., "b=", None),
    ],
)
def test_a_list_with_its_cursor_and_total_is_found_in_many_places(
    value: Any, meta: Any, cursor: Any, total: Any
) -> None:
    found = list_body(value)
    assert found is not None
    assert (found.rows, found.cursor, found.total) == (ROWS, cursor, total)
    assert found.shape == ("array" if value is ROWS else "data")
    assert meta is ... or found.meta == meta


@pytest.mark.parametrize(
    "value",
    [None, "text", 1, {}, {"data": None}, {"data": {"id": "a"}}, {"id": "a", "coins": ROWS}],
)
def test_anything_else_is_not_a_list(value: Any) -> None:
    assert list_body(value) is None


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({"plan": "pro", "used": 1, "limit": None}, {"plan": "pro", "used": 1, "limit": None}),
        ({"tier": {"name": "pro"}, "requests_used": 1}, {"plan": "pro", "used": 1}),
        ({"requests": {"used": 1, "quota": 9}, "periodEnd": "x"}, {"used": 1, "limit": 9}),
        ({"billingPeriod": {"from": "a", "to": "b"}}, {"period": {"start": "a", "end": "b"}}),
    ],
)
def test_a_usage_is_read_by_other_names(content: Any, fields: Any) -> None:
    assert usage_fields(content).items() >= fields.items()


def test_a_single_record_is_bare_or_in_data_unless_data_is_a_field() -> None:
    record = {"id": "a", "data": {"id": "b"}}
    assert single_body({"id": "a"}, key="id") == single_body({"data": {"id": "a"}}) == {"id": "a"}
    assert single_body({"data": ROWS}, key="id") == {"data": ROWS}
    assert single_body("text", key="id") == "text"
    assert single_body(record, key="id") == record
    assert single_body(record) == {"id": "b"}
