"""The fields of an event in the warehouse, in order, and which of them a plan shows.

A set of fields travels as a bitmask, bit `n` for the n-th field: cheap on a million rows.
Belongs here: names, bits, what the contract's plans show. Does not: types and meaning (tables).
"""

from typing import Final

from catalog.contract.plans import PLANS, ImpactView, Plan

FIELDS: Final[dict[str, str]] = {
    "slug": "slug",
    "title": "title",
    "description": "description",
    "displayed_date": "displayedDate",
    "date": "date",
    "date_end": "dateEnd",
    "date_type": "dateType",
    "is_estimated": "isEstimated",
    "categories": "categories",
    "coins": "coins",
    "impact": "impact",
    "impact_band": "impactBand",
    "impact_summary": "impactSummary",
    "source_url": "sourceUrl",
    "snapshot_url": "snapshotUrl",
    "last_verified_at": "lastVerifiedAt",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Column to name on the wire. `impactBand` is ours: the wire has both in `impact`."""

NAMES: Final = tuple(FIELDS)
BIT: Final[dict[str, int]] = {name: 1 << place for place, name in enumerate(NAMES)}
ALL: Final = sum(BIT.values())

UNCOMPARED: Final = frozenset({"last_verified_at", "updated_at"})
"""A difference in these alone makes no version."""


def mask(*names: str) -> int:
    """Return the bitmask of some fields."""
    return sum(BIT[name] for name in set(names))


def shown_by(plan: Plan) -> int:
    """Return the fields that a plan shows with a value (interface 8.3), never judged by a null."""
    shown = {column for column, wire in FIELDS.items() if plan.shows(wire)} - {"impact"}
    if plan.impact is not ImpactView.NONE:
        shown.add("impact_band")
    if plan.impact is ImpactView.PRECISE:
        shown.add("impact")
    return mask(*shown)


def plan_named(name: str) -> Plan:
    """Return a plan of the contract.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in PLANS:
        raise ValueError(f"{name!r} is no plan; there are {', '.join(PLANS)}")
    return PLANS[name]
