"""The inputs and the contents of a poll plan: records, the budget of a month, due times.

The planner makes plans (planner); docs/limits.md, "When Almanac polls", explains them. The budget
is the quota less the reserve and the daily jobs, at most the cap; None is no limit. The daily job
starts at 00:20 and pulls everything, so a poll just before it is wasted. Instants are aware UTC;
costs are in requests, rates per day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from math import inf
from typing import Final

from catalog.contract.plans import Plan
from pipeline.configuration.types import LEAST_POLL_INTERVAL_S
from pipeline.polling.rates import NOTHING_WATCHED, ChangeRates, rates
from pipeline.polling.windows import Calendar
from resources.ingest.scopes import PollWindow
from resources.limits.allowance import next_reset

DAILY_AT: Final = time(0, 20)
DAILY_DONE_BY: Final = time(1, 0)
"""By this time the daily job has sent its requests, or it was missed."""
MISSED_AFTER: Final = timedelta(minutes=40)
_AROUND: Final = timedelta(minutes=20)
"""A pull at most this long before the daily job replaces it."""
_DAY: Final = timedelta(days=1)


def next_time(of_day: time, after: datetime) -> datetime:
    """Return the first instant after another one that has a time of day."""
    found = datetime.combine(after.date(), of_day, tzinfo=after.tzinfo)
    return found if found > after else found + _DAY


def due_at(pulled_at: datetime, interval: timedelta, least: timedelta) -> datetime:
    """Return when the next pull is due: about an interval later, at least the least interval.

    The time until the daily job is divided evenly. If that gives one part, the job is the next
    pull, and a poll is due only if the job was missed.
    """
    ahead = next_time(DAILY_AT, pulled_at + _AROUND) - pulled_at
    parts = round(ahead / interval)
    if parts <= 1:
        return pulled_at + max(ahead + MISSED_AFTER, least)
    return pulled_at + max(ahead / parts, least)


@dataclass(frozen=True, slots=True)
class Month:
    """The quota of the month. Polls never use `reserve`; `cap` limits what they may still use.

    `daily_requests` is the cost of one daily job.
    """

    quota: int | None
    used: int
    resets_at: datetime
    reserve: int = 0
    cap: int | None = None
    daily_requests: int = 0

    def at(self, now: datetime) -> "Month":
        """Return the month of `now`: after the reset, a new one with nothing used."""
        if now < self.resets_at:
            return self
        return replace(self, used=0, cap=None, resets_at=next_reset(now))

    def days_left(self, now: datetime) -> float:
        return (self.resets_at - now) / _DAY

    def for_daily(self, now: datetime) -> int:
        """Return the requests of the daily jobs until the reset."""
        runs = max(0, -((next_time(DAILY_DONE_BY, now) - self.resets_at) // _DAY))
        return runs * self.daily_requests

    def for_polls(self, now: datetime) -> float:
        """Return the requests that polls may send until the reset, at least 0; inf for no limit."""
        bounds = [] if self.cap is None else [self.cap]
        if self.quota is not None:
            bounds.append(self.quota - self.used - self.reserve - self.for_daily(now))
        return max(0, min(bounds)) if bounds else inf


@dataclass(frozen=True, slots=True)
class ReceivedPush:
    """The receipt of the newest delivery, and what follows from it.

    Push is on until `silent_after` has passed without a delivery. Until then, polls of the same
    dates are at least `poll_interval` apart.
    """

    last_at: datetime
    silent_after: timedelta
    poll_interval: timedelta

    def is_on(self, now: datetime) -> bool:
        return now - self.last_at <= self.silent_after


@dataclass(frozen=True, slots=True)
class PlannerInputs:
    """The inputs of a plan.

    `last_pulls` has the last pull of each event date, by a poll or the daily job; `missing` are
    the ids absent from a complete pull and not confirmed, oldest first; `looked_up_today` counts
    the look-ups of today; `push` is None if no delivery was ever received; `freshness` replaces the
    plan's own if it is given.
    """

    plan: Plan
    now: datetime
    month: Month
    calendar: Calendar
    last_pulls: Mapping[date, datetime]
    cancellations_pulled_at: datetime | None = None
    rates: ChangeRates = field(default_factory=lambda: rates(NOTHING_WATCHED))
    missing: Sequence[str] = ()
    looked_up_today: int = 0
    push: ReceivedPush | None = None
    least_interval: timedelta = timedelta(seconds=LEAST_POLL_INTERVAL_S)
    freshness: timedelta | None = None

    def least(self) -> timedelta:
        """Return the interval below which a pull shows nothing new, or is not wanted."""
        fresh = timedelta(seconds=self.plan.freshness_s)
        least = max(self.least_interval, fresh if self.freshness is None else self.freshness)
        if self.push is not None and self.push_is_on:
            return max(least, self.push.poll_interval)
        return least

    @property
    def push_is_on(self) -> bool:
        """Whether push brings the changes, so that polls only look for what it does not bring."""
        return self.plan.webhooks and self.push is not None and self.push.is_on(self.now)

    @property
    def push_is_silent(self) -> bool:
        """Whether push brought changes before, and has not for too long."""
        return self.plan.webhooks and self.push is not None and not self.push.is_on(self.now)


@dataclass(frozen=True, slots=True)
class EventsPull:
    """A complete pull of a window of event dates, and its expected cost."""

    window: PollWindow
    requests: int


@dataclass(frozen=True, slots=True)
class CancellationsPull:
    """The cancellations since an instant; None is as far back as the service lists them."""

    since: datetime | None
    requests: int = 1


@dataclass(frozen=True, slots=True)
class LookUps:
    """Single look-ups of missing events."""

    event_ids: tuple[str, ...]

    @property
    def requests(self) -> int:
        return len(self.event_ids)


Pull = EventsPull | CancellationsPull | LookUps


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A row of the schedule, for people: `window` None is the cancellations."""

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
    """The due pulls, the next due time, and the division of the budget.

    `next_at` assumes that due pulls are done. `per_day` is the planned requests of polls;
    `projected_at_reset` is the month's use including them and the daily jobs; `spare` is the rest
    of the quota beside the reserve. Both are None without a quota.
    """

    due: tuple[Pull, ...]
    next_at: datetime
    schedule: tuple[ScheduleRow, ...]
    per_day: float
    projected_at_reset: int | None
    spare: int | None
