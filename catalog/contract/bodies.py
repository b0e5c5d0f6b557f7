"""The forms of a JSON answer that a client accepts (decisions, what the client also accepts).

The one reader of the `data` wrapper: of lists and of single records, for pages as they arrive and
for pages in landing. Belongs here: where the rows and the meta of a decoded body are. Does not:
how bytes become values, how many rows may be there, what a row has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ListShape = Literal["data", "array"]


@dataclass(frozen=True, slots=True)
class ListBody:
    """A decoded list. `meta` is None where the body has none, and empty where it is no object."""

    rows: list[Any]
    shape: ListShape
    meta: Mapping[str, Any] | None = None


def list_body(value: Any) -> ListBody | None:
    """Return the list that a body is, a bare array or one in `data`; None for anything else."""
    if isinstance(value, list):
        return ListBody(value, "array")
    rows = value.get("data") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        return None
    if "meta" not in value:
        return ListBody(rows, "data")
    return ListBody(rows, "data", value["meta"] if isinstance(value["meta"], dict) else {})


def is_wrapped(value: Any) -> bool:
    """Whether a body is an object that has another one in `data`."""
    return isinstance(value, dict) and isinstance(value.get("data"), dict)


def single_body(value: Any, *, key: str = "") -> Any:
    """Return the record that a body is, bare or in `data`.

    A body that has `key` is the record itself, and its `data` a field of it.
    """
    if is_wrapped(value) and (not key or key not in value):
        return value["data"]
    return value
