"""How long records are kept, and what was deleted of them. This module does not import Dagster."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from pipeline.configuration.retention import RetentionSettings


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept, in days after their end; `runs_max` is a number of runs.

    Runs that failed or were canceled have their own length. At most `runs_max` of each outcome are
    kept, so that a busy week does not fill the disk.
    """

    runs_days: int
    failed_runs_days: int
    runs_max: int
    ticks_days: int
    compute_logs_days: int
    request_logs_days: int
    deliveries_days: int

    def runs_before(self, now: datetime, *, succeeded: bool) -> datetime:
        """Return the instant before which runs of an outcome have ended for too long."""
        return now - timedelta(days=self.runs_days if succeeded else self.failed_runs_days)

    @classmethod
    def of(cls, settings: RetentionSettings) -> Self:
        """Return the lengths of the settings."""
        return cls(
            runs_days=settings.keep_runs_days,
            failed_runs_days=settings.keep_failed_runs_days,
            runs_max=settings.keep_runs,
            ticks_days=settings.keep_ticks_days,
            compute_logs_days=settings.keep_output_days,
            request_logs_days=settings.keep_request_logs_days,
            deliveries_days=settings.keep_deliveries_days,
        )

    @classmethod
    def of_days(cls, days: int, settings: RetentionSettings) -> Self:
        """Return the same number of days for every kind."""
        return replace(
            cls.of(settings),
            runs_days=days,
            failed_runs_days=days,
            ticks_days=days,
            compute_logs_days=days,
            request_logs_days=days,
            deliveries_days=days,
        )


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted of one kind, or would be; `bytes` is 0 where they are not counted."""

    what: str
    count: int
    bytes: int = 0
