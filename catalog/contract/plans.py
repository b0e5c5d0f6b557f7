"""The plans: limits, windows, freshness and visible fields, as one table (interface 8.1 to 8.3)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from catalog.contract import decisions


class ImpactView(StrEnum):
    """How a plan shows the impact score."""

    NONE = "none"
    BANDED = "banded"
    PRECISE = "precise"


@dataclass(frozen=True, slots=True)
class Plan:
    """One row of the tables 8.1 and 8.3. Days and seconds as named; None means no bound."""

    name: str
    rank: int
    monthly_quota: int | None
    rate_per_s: float
    burst: int
    keys_max: int | None
    seats: int | None
    horizon_days: int | None
    past_days: int | None
    """Days of the past that the plan shows; 0 is none, None is all, since 2017."""
    coverage_top: int | None
    """Only events with a coin among the top N by rank; None is all coins."""
    freshness_s: int
    event_fields: frozenset[str]
    """Event fields that have a value on this plan, by their names in JSON."""
    impact: ImpactView
    score_counters: bool
    """Whether a coin has `majorCount` and `peakImpact`, or null."""
    webhooks: bool
    export: bool

    def shows(self, field: str) -> bool:
        return field in self.event_fields

    def is_at_least(self, other: "Plan") -> bool:
        """Whether this plan is `other` or above it."""
        return self.rank >= other.rank


_FREE_FIELDS = frozenset(
    {
        *("id", "slug", "title", "displayedDate", "date", "dateEnd", "dateType"),
        *("isEstimated", "coins", "createdAt", "updatedAt"),
    }
)
_STANDARD_FIELDS = _FREE_FIELDS | {"categories", "description"}
_PRO_FIELDS = _STANDARD_FIELDS | {
    *("impact", "impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt"),
}

FREE: Final = Plan(
    name="free",
    rank=0,
    monthly_quota=3_000,
    rate_per_s=1,
    burst=5,
    keys_max=1,
    seats=1,
    horizon_days=7,
    past_days=0,
    coverage_top=100,
    freshness_s=24 * 3600,
    event_fields=_FREE_FIELDS,
    impact=ImpactView.NONE,
    score_counters=False,
    webhooks=False,
    export=False,
)
STANDARD: Final = Plan(
    name="standard",
    rank=1,
    monthly_quota=30_000,
    rate_per_s=3,
    burst=15,
    keys_max=5,
    seats=3,
    horizon_days=90,
    past_days=0,
    coverage_top=None,
    freshness_s=60,
    event_fields=_STANDARD_FIELDS,
    impact=ImpactView.NONE,
    score_counters=False,
    webhooks=False,
    export=False,
)
PRO: Final = Plan(
    name="pro",
    rank=2,
    monthly_quota=300_000,
    rate_per_s=10,
    burst=50,
    keys_max=10,
    seats=5,
    horizon_days=None,
    past_days=30,
    coverage_top=None,
    freshness_s=60,
    event_fields=_PRO_FIELDS,
    impact=ImpactView.BANDED,
    score_counters=True,
    webhooks=False,
    export=False,
)
ELITE: Final = Plan(
    name="elite",
    rank=3,
    monthly_quota=3_000_000,
    rate_per_s=25,
    burst=150,
    keys_max=20,
    seats=10,
    horizon_days=None,
    past_days=None,
    coverage_top=None,
    freshness_s=60,
    event_fields=_PRO_FIELDS,
    impact=ImpactView.PRECISE,
    score_counters=True,
    webhooks=True,
    export=True,
)
ENTERPRISE: Final = Plan(
    name="enterprise",
    rank=4,
    monthly_quota=None,
    rate_per_s=decisions.ENTERPRISE_RATE_PER_S,
    burst=decisions.ENTERPRISE_BURST,
    keys_max=None,
    seats=None,
    horizon_days=None,
    past_days=None,
    coverage_top=None,
    freshness_s=60,
    event_fields=_PRO_FIELDS,
    impact=ImpactView.PRECISE,
    score_counters=True,
    webhooks=True,
    export=True,
)

PLANS: Final[dict[str, Plan]] = {
    plan.name: plan for plan in (FREE, STANDARD, PRO, ELITE, ENTERPRISE)
}
"""Every plan by name, in ascending order."""

LEAST_PLAN_FOR_FILTER: Final[dict[str, Plan]] = {
    "categories": STANDARD,
    "impactMin": ELITE,
    "sortBy=impact_desc": ELITE,
}
"""The lowest plan that may use a filter; filters not named here are open to all."""


def impact_band(score: float) -> str:
    """Return the band of a score from 0 to 10: Low, Mid, High or Critical."""
    return next(name for edge, name in decisions.IMPACT_BANDS if score < edge)
