"""The range of dates that a plan shows, and how a requested range is clamped to it.

Interface 8.3 and the decisions on windows, defaults and clamping. 'Today' is the service's
day. Bounds are inclusive and aware UTC; None is no bound.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from catalog.contract.decisions import CATALOG_STARTS
from catalog.contract.plans import Plan

END_OF_DAY = time(23, 59, 59, 999_999, tzinfo=UTC)
INSTANT_STEP: Final = timedelta(microseconds=1)
"""The least between two instants: what starts after an inclusive bound starts this much later."""
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


def day_end(day: date) -> datetime:
    return datetime.combine(day, END_OF_DAY)


def plan_window(plan: Plan, now: datetime) -> Window:
    """Return all that the plan shows: its past, today, its horizon."""
    today = day_start(now)
    lower = _CATALOG_STARTS_AT if plan.past_days is None else today - timedelta(days=plan.past_days)
    return Window(lower, _horizon(plan, today))


def upcoming_window(plan: Plan, now: datetime) -> Window:
    """Return the default range of the events list, which the counters of a coin also use."""
    today = day_start(now)
    return Window(today, _horizon(plan, today))


def requested_window(
    plan: Plan, now: datetime, *, lower: datetime | None, upper: datetime | None
) -> Window:
    """Return the requested range with defaults, clamped to the plan and never rejected."""
    whole, usual = plan_window(plan, now), upcoming_window(plan, now)
    requested_lower = usual.lower if lower is None else lower
    requested_upper = usual.upper if upper is None else upper
    uppers = [bound for bound in (requested_upper, whole.upper) if bound is not None]
    return Window(max(requested_lower, whole.lower), min(uppers, default=None))


def _horizon(plan: Plan, today: datetime) -> datetime | None:
    if plan.horizon_days is None:
        return None
    return day_end((today + timedelta(days=plan.horizon_days)).date())
