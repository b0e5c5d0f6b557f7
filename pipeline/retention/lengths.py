"""How long records are kept, and what was deleted of them. This module does not import Dagster."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept, in days after their end; `runs_max` is a number of runs.

    Runs that failed or were canceled have their own length. At most `runs_max` of each outcome are
    kept, so that a busy week does not fill the disk.
    """

    runs_days: int = 30
    failed_runs_days: int = 60
    runs_max: int = 300
    ticks_days: int = 14
    compute_logs_days: int = 14
    request_logs_days: int = 90

    def runs_before(self, now: datetime, *, succeeded: bool) -> datetime:
        """Return the instant before which runs of an outcome have ended for too long."""
        return now - timedelta(days=self.runs_days if succeeded else self.failed_runs_days)

    @classmethod
    def of_days(cls, days: int) -> Self:
        """Return the same number of days for every kind."""
        return cls(
            runs_days=days,
            failed_runs_days=days,
            ticks_days=days,
            compute_logs_days=days,
            request_logs_days=days,
        )


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted of one kind, or would be; `bytes` is 0 where they are not counted."""

    what: str
    count: int
    bytes: int = 0
