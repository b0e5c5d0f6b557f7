"""The plans as one table, and the dates that each plan shows (interface 8.1 to 8.3).

"Today" is the service's day. Bounds of dates are inclusive and aware UTC; None means no bound.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

from catalog.contract import constants
from catalog.contract.constants import CATALOG_STARTS


class ImpactView(StrEnum):
    """How a plan shows the impact score."""

    NONE = "none"
    BANDED = "banded"
    PRECISE = "precise"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One row of the tables 8.1 and 8.3. Names state the unit, days or seconds; None means no
    bound.

    Each plan is one object, compared by identity.
    """

    name: str
    rank: int
    monthly_quota: int | None
    rate_per_s: float
    burst: int
    keys_max: int | None
    seats: int | None
    horizon_days: int | None
    past_days: int | None
    """Past days that the plan shows; 0 means none, None means all since 2017."""
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
        """Whether the plan shows an event field; every plan shows a field that no plan names."""
        return field in self.event_fields or field not in _PRO_FIELDS

    def is_at_least(self, other: "Plan") -> bool:
        return self.rank >= other.rank


_FREE_FIELDS = frozenset(
    {
        *("id", "slug", "title", "displayedDate", "date", "dateEnd", "dateType"),
        *("isEstimated", "coins", "createdAt", "updatedAt"),
    }
)
_STANDARD_FIELDS = _FREE_FIELDS | {"categories", "description"}
_PRO_FIELDS = _STANDARD_FIELDS | {
    *("impact", "impactSummary", "sourceUrl", "snapshotUrl", "lastVerifiedAt")
}

# fmt: off
FREE: Final = Plan(
    name="free", rank=0, monthly_quota=3_000, rate_per_s=1, burst=5, keys_max=1, seats=1,
    horizon_days=7, past_days=0, coverage_top=100, freshness_s=24 * 3600,
    event_fields=_FREE_FIELDS, impact=ImpactView.NONE, score_counters=False,
    webhooks=False, export=False,
)
STANDARD: Final = replace(
    FREE, name="standard", rank=1, monthly_quota=30_000, rate_per_s=3, burst=15, keys_max=5,
    seats=3, horizon_days=90, coverage_top=None, freshness_s=60, event_fields=_STANDARD_FIELDS,
)
PRO: Final = replace(
    STANDARD, name="pro", rank=2, monthly_quota=300_000, rate_per_s=10, burst=50, keys_max=10,
    seats=5, horizon_days=None, past_days=30, event_fields=_PRO_FIELDS,
    impact=ImpactView.BANDED, score_counters=True,
)
ELITE: Final = replace(
    PRO, name="elite", rank=3, monthly_quota=3_000_000, rate_per_s=25, burst=150, keys_max=20,
    seats=10, past_days=None, impact=ImpactView.PRECISE, webhooks=True, export=True,
)
ENTERPRISE: Final = replace(
    ELITE, name="enterprise", rank=4, monthly_quota=None, keys_max=None, seats=None,
    rate_per_s=constants.ENTERPRISE_RATE_PER_S, burst=constants.ENTERPRISE_BURST,
)
# fmt: on

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
    return next(name for edge, name in constants.IMPACT_BANDS if score < edge)


END_OF_DAY = time(23, 59, 59, 999_999, tzinfo=UTC)
INSTANT_STEP: Final = timedelta(microseconds=1)
"""The resolution of time: a range that starts after an inclusive bound starts this much later."""
_CATALOG_STARTS_AT = datetime.combine(date.fromisoformat(CATALOG_STARTS), time(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Window:
    """A closed range of event dates. Empty when `lower` is after `upper`."""

    lower: datetime
    upper: datetime | None

    @property
    def empty(self) -> bool:
        return self.upper is not None and self.lower > self.upper

    def overlaps(self, start: datetime, end: datetime | None) -> bool:
        """Whether an event on `[start, end]` is in the window, at least in part."""
        return (self.upper is None or start <= self.upper) and (end or start) >= self.lower


def day_start(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(instant: datetime) -> datetime:
    return day_start(instant).replace(day=1)


def next_month(start: datetime) -> datetime:
    return (start + timedelta(days=32)).replace(day=1)


def day_end(day: date) -> datetime:
    return datetime.combine(day, END_OF_DAY)


def find_plan_window(plan: Plan, now: datetime) -> Window:
    """Return the window of dates that the plan shows: past, today and horizon."""
    today = day_start(now)
    lower = _CATALOG_STARTS_AT if plan.past_days is None else today - timedelta(days=plan.past_days)
    return Window(lower, _horizon(plan, today))


def find_upcoming_window(plan: Plan, now: datetime) -> Window:
    """Return the default range of the events list, which the counters of a coin also use."""
    return Window(day_start(now), _horizon(plan, now))


def clamp_window(
    plan: Plan, now: datetime, *, lower: datetime | None, upper: datetime | None
) -> Window:
    """Return the requested range with defaults, clamped to the plan and never rejected."""
    whole, usual = find_plan_window(plan, now), find_upcoming_window(plan, now)
    requested_lower = usual.lower if lower is None else lower
    requested_upper = usual.upper if upper is None else upper
    uppers = [bound for bound in (requested_upper, whole.upper) if bound is not None]
    return Window(max(requested_lower, whole.lower), min(uppers, default=None))


def _horizon(plan: Plan, now: datetime) -> datetime | None:
    if plan.horizon_days is None:
        return None
    return day_end((now + timedelta(days=plan.horizon_days)).date())
