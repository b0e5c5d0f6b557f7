"""What polls may still spend of a month: the quota less the reserve, the day's jobs, the cap.

Belongs here: the account of a month and what follows from it. Does not: what it is spent on.
Instants are UTC; everything is counted in requests. None is no limit.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import Final

from pipeline.poll_times import DAILY_DONE_BY, next_time
from resources.allowance import next_reset

_DAY: Final = timedelta(days=1)


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
