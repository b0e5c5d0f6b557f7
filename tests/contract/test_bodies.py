"""The forms of a JSON answer that a client accepts: lists, single records, and what is neither."""

from typing import Any

import pytest

from catalog.contract.bodies import is_wrapped, list_body, single_body

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
