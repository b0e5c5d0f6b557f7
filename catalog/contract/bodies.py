"""The forms of a JSON answer that a client accepts (decisions, what the client also accepts).

The only reader of the `data` wrapper, for lists and single records, for pages as they arrive and
for pages in landing. Belongs here: where a decoded body has its rows and its meta. Does not: how
bytes become values, how many rows there may be, what a row has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ListShape = Literal["data", "array"]


@dataclass(frozen=True, slots=True)
class ListBody:
    """A decoded list. `meta` is None if the body has none, and empty if it is not an object."""

    rows: list[Any]
    shape: ListShape
    meta: Mapping[str, Any] | None = None


def list_body(value: Any) -> ListBody | None:
    """Return the list of a body, a bare array or one in `data`; None for anything else."""
    if isinstance(value, list):
        return ListBody(value, "array")
    rows = value.get("data") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        return None
    if "meta" not in value:
        return ListBody(rows, "data")
    return ListBody(rows, "data", value["meta"] if isinstance(value["meta"], dict) else {})


def is_wrapped(value: Any) -> bool:
    """Whether a body is an object that has another object in `data`."""
    return isinstance(value, dict) and isinstance(value.get("data"), dict)


def single_body(value: Any, *, key: str = "") -> Any:
    """Return the record of a body, bare or in `data`.

    A body that has `key` is the record itself, and its `data` is a field.
    """
    if is_wrapped(value) and (not key or key not in value):
        return value["data"]
    return value
