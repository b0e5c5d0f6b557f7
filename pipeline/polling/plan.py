"""What a poll plan follows from, and what it contains: records, a month's budget, due times.

The planner makes them (planner). The budget is the quota less the reserve, the day's jobs and the
cap; None is no limit. The day's job begins at 00:20 and pulls everything, so a poll shortly before
it is wasted. Instants are aware UTC; costs are in requests, rates per day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from math import inf
from typing import Final

from catalog.contract.plans import Plan
from pipeline.polling.rates import NOTHING_WATCHED, ChangeRates, rates
from pipeline.polling.windows import Calendar
from pipeline.setting_types import LEAST_POLL_INTERVAL_S
from resources.ingest.scopes import PollWindow
from resources.limits.allowance import next_reset

DAILY_AT: Final = time(0, 20)
DAILY_DONE_BY: Final = time(1, 0)
"""When the day's job has surely looked, and paid for it; else it was missed."""
MISSED_AFTER: Final = timedelta(minutes=40)
_AROUND: Final = timedelta(minutes=20)
"""A look so shortly before the day's job is as good as the job's: content is a minute old."""
_DAY: Final = timedelta(days=1)


def next_time(of_day: time, after: datetime) -> datetime:
    """Return the first instant after another at a time of day."""
    found = datetime.combine(after.date(), of_day, tzinfo=after.tzinfo)
    return found if found > after else found + _DAY


def due_at(pulled_at: datetime, interval: timedelta, least: timedelta) -> datetime:
    """Return when to look again, about an interval later and never before the least.

    What is left until the day's job is parted evenly; where that is one part, the job does it, and
    a poll is due only if it was missed.
    """
    ahead = next_time(DAILY_AT, pulled_at + _AROUND) - pulled_at
    parts = round(ahead / interval)
    if parts <= 1:
        return pulled_at + max(ahead + MISSED_AFTER, least)
    return pulled_at + max(ahead / parts, least)


@dataclass(frozen=True, slots=True)
class Month:
    """The month as it is counted. `reserve` is never touched, `cap` bounds what polls still use.

    `daily_requests` is what one run of the day's job costs.
    """

    quota: int | None
    used: int
    resets_at: datetime
    reserve: int = 0
    cap: int | None = None
    daily_requests: int = 0

    def at(self, now: datetime) -> "Month":
        """Return the month that `now` lies in: once it has turned, nothing is used of it."""
        if now < self.resets_at:
            return self
        return replace(self, used=0, cap=None, resets_at=next_reset(now))

    def days_left(self, now: datetime) -> float:
        return (self.resets_at - now) / _DAY

    def for_daily(self, now: datetime) -> int:
        """Return what the runs of the day's job until the reset still cost."""
        runs = max(0, -((next_time(DAILY_DONE_BY, now) - self.resets_at) // _DAY))
        return runs * self.daily_requests

    def for_polls(self, now: datetime) -> float:
        """Return what polls may spend until the reset, at least 0; infinite without a quota."""
        bounds = [] if self.cap is None else [self.cap]
        if self.quota is not None:
            bounds.append(self.quota - self.used - self.reserve - self.for_daily(now))
        return max(0, min(bounds)) if bounds else inf


@dataclass(frozen=True, slots=True)
class PlannerInputs:
    """All that a plan follows from.

    `last_looks` says when each event date was looked at last, by a poll or the day's job;
    `vanished` are the ids absent from a complete look and not confirmed, oldest first, of which
    `looked_up_today` were asked already; `freshness` replaces the plan's own where it is given.
    """

    plan: Plan
    now: datetime
    month: Month
    calendar: Calendar
    last_pulls: Mapping[date, datetime]
    cancellations_pulled_at: datetime | None = None
    rates: ChangeRates = field(default_factory=lambda: rates(NOTHING_WATCHED))
    vanished: Sequence[str] = ()
    looked_up_today: int = 0
    webhooks: bool = False
    least_interval: timedelta = timedelta(seconds=LEAST_POLL_INTERVAL_S)
    freshness: timedelta | None = None

    def least(self) -> timedelta:
        """Return the interval below which a look brings nothing, or is not wanted."""
        fresh = timedelta(seconds=self.plan.freshness_s)
        return max(self.least_interval, fresh if self.freshness is None else self.freshness)


@dataclass(frozen=True, slots=True)
class EventsPull:
    """A complete look at a window of event dates, and what it is expected to cost."""

    window: PollWindow
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
class ScheduleRow:
    """One unit of the schedule, for people: `window` None is the cancellations."""

    window: PollWindow | None
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
    schedule: tuple[ScheduleRow, ...]
    per_day: float
    projected_at_reset: int | None
    spare: int | None
