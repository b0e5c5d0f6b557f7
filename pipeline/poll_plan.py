"""What a poll plan follows from, and what it says: records only; poll_planner.py makes them.

Instants are aware UTC; costs are in requests, rates a day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final

from catalog.contract.plans import Plan
from pipeline.poll_budget import Month
from pipeline.poll_rates import NOTHING_WATCHED, ChangeRates, rates
from pipeline.poll_windows import Calendar, Window

LEAST_INTERVAL: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Known:
    """All that a plan follows from.

    `last_looks` says when each event date was looked at last, by a poll or the day's job;
    `vanished` are the ids absent from a complete look and not confirmed, oldest first, of which
    `looked_up_today` were asked already; `freshness` replaces the plan's own where it is given.
    """

    plan: Plan
    now: datetime
    month: Month
    calendar: Calendar
    last_looks: Mapping[date, datetime]
    cancellations_looked_at: datetime | None = None
    rates: ChangeRates = field(default_factory=lambda: rates(NOTHING_WATCHED))
    vanished: Sequence[str] = ()
    looked_up_today: int = 0
    webhooks: bool = False
    least_interval: timedelta = LEAST_INTERVAL
    freshness: timedelta | None = None

    def least(self) -> timedelta:
        """Return the interval below which a look brings nothing, or is not wanted."""
        fresh = timedelta(seconds=self.plan.freshness_s)
        return max(self.least_interval, fresh if self.freshness is None else self.freshness)


@dataclass(frozen=True, slots=True)
class EventsPull:
    """A complete look at a window of event dates, and what it is expected to cost."""

    window: Window
    requests: int


@dataclass(frozen=True, slots=True)
class CancellationsPull:
    """The cancellations since an instant; None is as far back as the service tells."""

    since: datetime | None
    requests: int = 1


@dataclass(frozen=True, slots=True)
class LookUps:
    """Single look-ups of vanished events."""

    event_ids: tuple[str, ...]

    @property
    def requests(self) -> int:
        return len(self.event_ids)


Pull = EventsPull | CancellationsPull | LookUps


@dataclass(frozen=True, slots=True)
class Row:
    """One unit of the schedule, for people: `window` None is the cancellations."""

    window: Window | None
    interval: timedelta
    requests_per_day: float
    changes_per_day: float
    why: str

    @property
    def unit(self) -> str:
        return "cancellations" if self.window is None else str(self.window)


@dataclass(frozen=True, slots=True)
class PollPlan:
    """What is due now, when something is due next, and how the budget is divided.

    `next_at` takes what is due as done. `per_day` is what polls are planned to spend;
    `projected_at_reset` counts the month's use with them and the day's jobs; `spare` is what they
    leave of the quota beside the reserve. Both are None without a quota.
    """

    due: tuple[Pull, ...]
    next_at: datetime
    schedule: tuple[Row, ...]
    per_day: float
    projected_at_reset: int | None
    spare: int | None
