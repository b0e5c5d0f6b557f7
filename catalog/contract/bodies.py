"""The forms of a JSON body that a client accepts (decisions, what the client also accepts).

The only reader of the `data` wrapper, for lists, single records and deliveries, for pages as they
arrive and for pages in landing. Belongs here: where a decoded body has its rows, its meta and its
event. Does not: how bytes become values, how many rows there may be, what a row has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

ListShape = Literal["data", "array"]
_ENVELOPE: Final = frozenset({"type", "apiVersion", "deliveredAt"})


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


@dataclass(frozen=True, slots=True)
class DeliveryBody:
    """A decoded delivery. The values are as sent, of any type; None if they are absent."""

    id: Any
    """The delivery's own id, None if the body has none."""
    type: Any
    event: Any
    """Its event, without the fields of the delivery."""
    created_at: Any
    """When the delivery was made, as the delivery itself states it."""
    delivered_at: Any


def delivery_body(value: Any) -> DeliveryBody | None:
    """Return the parts of a delivery, None if it is not an object.

    The event is in `data`, or is the body itself. In the second case `id` and `createdAt` are
    the event's, and the delivery has none: if the event's id counted for the delivery, every later
    delivery of the event would be a repetition of the first.
    """
    if not isinstance(value, dict):
        return None
    kind, delivered_at = value.get("type"), value.get("deliveredAt")
    if "data" not in value:
        event = {key: value[key] for key in value if key not in _ENVELOPE}
        return DeliveryBody(None, kind, event, None, delivered_at)
    event, own_id = value["data"], value.get("id")
    if isinstance(event, dict) and own_id == event.get("id"):
        own_id = None
    return DeliveryBody(own_id, kind, event, value.get("createdAt"), delivered_at)
