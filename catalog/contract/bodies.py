"""The forms of a JSON body that a client accepts, also forms beside the interface's own.

Only this module reads the `data` wrapper: of lists, single records and deliveries, when pages
arrive and when stored pages are read.
"""

from collections.abc import Iterable, Mapping
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

    @property
    def cursor(self) -> Any:
        """The cursor of the next page as sent, None if there is none."""
        return (self.meta or {}).get("cursor")

    @property
    def total(self) -> Any:
        """The number of all rows as sent, None if it is absent."""
        return (self.meta or {}).get("total")


def read_list_body(value: Any) -> ListBody | None:
    """Return the list of a body, a bare array or one in `data`; None for anything else."""
    if isinstance(value, list):
        return ListBody(value, "array")
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        return None
    meta = value.get("meta") if isinstance(value.get("meta"), dict) else {}
    return ListBody(value["data"], "data", meta if "meta" in value else None)


def fold(name: str) -> str:
    """Return a name in lower case without `_` and `-`."""
    return "".join(filter(str.isalnum, name)).lower()


def fold_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields by their normalised names. If two names are equal, the first field is kept."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found.setdefault(fold(name), value)
    return found


def first_named(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first field that has one of these normalised names and is not null, else None."""
    named = fold_names(fields)
    return next((named[name] for name in names if named.get(name) is not None), None)


_COUNTS_IN: Final = ("requests", "usage", "quota")
_USAGE: Final[Mapping[str, tuple[str, ...]]] = {
    "plan": ("plan", "tier", "planname", "subscription"),
    "used": ("used", "requestsused", "usedrequests", "usage", "consumed"),
    "limit": ("limit", "quota", "monthlyquota", "monthlylimit", "requestslimit", "allowed"),
    "remaining": ("remaining", "requestsremaining", "left", "requestsleft"),
    "resetAt": ("resetat", "resetsat", "reset", "nextreset", "periodend", "resetdate"),
    "rate": ("rate", "ratepersecond", "ratelimit", "requestspersecond"),
    "burst": ("burst", "burstlimit", "burstcapacity"),
    "period": ("period", "billingperiod", "window"),
}
"""The fields of the usage, and the normalised names that are accepted for each."""


def read_usage_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage by the contract's names. An absent field has no key.

    The counts may be in an object of their own, and the plan may be an object with its name.
    """
    named = fold_names(content)
    for name in _COUNTS_IN:
        if isinstance(inner := named.get(name), dict):
            named = {**fold_names(inner), **{key: named[key] for key in named if key != name}}
    found = {
        field: next(named[name] for name in names if name in named)
        for field, names in _USAGE.items()
        if not named.keys().isdisjoint(names)
    }
    if isinstance(plan := found.get("plan"), dict):
        found["plan"] = first_named(plan, ("name", "id", "slug", "code"))
    if isinstance(period := found.get("period"), dict):
        ends = {"start": ("start", "from", "begin"), "end": ("end", "to", "until")}
        found["period"] = {name: first_named(period, names) for name, names in ends.items()}
    return found


def read_single_body(value: Any, *, key: str | None = None) -> Any:
    """Return the record of a body, bare or in `data`.

    A body that has `key` is the record itself, and its `data` is a field.
    """
    if isinstance(value, dict) and isinstance(value.get("data"), dict) and key not in value:
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


def read_delivery_body(value: Any) -> DeliveryBody | None:
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
