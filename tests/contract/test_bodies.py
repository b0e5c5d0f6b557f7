from typing import Any

import pytest

from catalog.contract.bodies import read_list_body, read_single_body, read_usage_fields

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
        ({"data": ROWS, "meta": {"cursor": "a"}}, ..., "a", None),
    ],
)
def test_a_list_is_bare_or_in_data(value: Any, meta: Any, cursor: Any, total: Any) -> None:
    found = read_list_body(value)
    assert found is not None
    assert (found.rows, found.cursor, found.total) == (ROWS, cursor, total)
    assert found.shape == ("array" if value is ROWS else "data")
    assert meta is ... or found.meta == meta


def test_anything_else_is_not_a_list() -> None:
    others: tuple[Any, ...] = (
        None,
        "text",
        {},
        {"data": None},
        {"id": "a", "coins": ROWS},
        {"items": ROWS},
    )
    assert [value for value in others if read_list_body(value) is not None] == []


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
    assert read_usage_fields(content).items() >= fields.items()


def test_a_single_record_is_bare_or_in_data_unless_data_is_a_field() -> None:
    record = {"id": "a", "data": {"id": "b"}}
    assert (
        read_single_body({"id": "a"}, key="id")
        == read_single_body({"data": {"id": "a"}})
        == {"id": "a"}
    )
    assert read_single_body({"data": ROWS}, key="id") == {"data": ROWS}
    assert read_single_body("text", key="id") == "text"
    assert read_single_body(record, key="id") == record
    assert read_single_body(record) == {"id": "b"}
