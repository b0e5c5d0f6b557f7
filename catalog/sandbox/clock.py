"""The sandbox's clock, which runs with the wall clock or stands still until it is moved."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock

from almanac.core.timestamps import utc_now

EARLIEST = datetime(2017, 1, 1, tzinfo=UTC)
LATEST = datetime(2040, 1, 1, tzinfo=UTC)
"""The range of times that the synthetic catalog covers."""


def check_time(instant: datetime) -> datetime:
    """Return the time in UTC.

    Raises:
        ValueError: without a timezone, or outside `EARLIEST` to `LATEST`.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no timezone; give it in UTC, e.g. with a Z")
    if not EARLIEST <= instant <= LATEST:
        raise ValueError(f"{instant.isoformat()} is outside {EARLIEST:%Y} to {LATEST:%Y}")
    return instant.astimezone(UTC)


class SandboxClock:
    """Thread-safe: tests move it while the server reads it. Every time is aware UTC."""

    def __init__(
        self, start: datetime | None = None, *, wall: Callable[[], datetime] | None = None
    ) -> None:
        self._wall = wall or utc_now
        self._lock = Lock()
        self._shift = timedelta(0)
        self._fixed_at = None if start is None else check_time(start)
        self._skipped = timedelta(0)

    @property
    def running(self) -> bool:
        return self._fixed_at is None

    def now(self) -> datetime:
        with self._lock:
            return self._now()

    def set(self, instant: datetime) -> None:
        """Stand at a time until advanced or run."""
        with self._lock:
            self._skipped += max(check_time(instant) - self._now(), timedelta(0))
            self._fixed_at = check_time(instant)

    def advance(self, by: timedelta) -> datetime:
        """Move forward (or back) and return the new time; a running clock continues to run."""
        with self._lock:
            moved = check_time(self._now() + by)
            self._shift += by
            self._skipped += max(by, timedelta(0))
            self._fixed_at = None if self._fixed_at is None else moved
            return moved

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic time plus all time that was skipped, so that the request
        rate recovers in it."""
        return time.monotonic_ns() + self._skipped // timedelta(microseconds=1) * 1_000

    def run(self) -> None:
        """Run with the wall clock from the current time."""
        with self._lock:
            self._shift = self._now() - self._wall()
            self._fixed_at = None

    def _now(self) -> datetime:
        return self._wall() + self._shift if self._fixed_at is None else self._fixed_at
