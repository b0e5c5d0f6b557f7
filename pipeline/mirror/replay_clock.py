"""The virtual clock of a replay: it runs from a start to an end, at a multiple of real time."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from time import monotonic
from typing import Final

SPEED_MAX: Final = 1e9


class ReplayClock:
    """Thread-safe. It stands at `until`, and never leaves the range.

    Raises:
        ValueError: the range is empty, or the speed is not above 0.
    """

    def __init__(
        self,
        start: datetime,
        until: datetime,
        *,
        speed: float = 1.0,
        paused: bool = False,
    ) -> None:
        if start >= until:
            raise ValueError(f"the replay would end at {until:%FT%TZ}, before it starts")
        self.start = start.astimezone(UTC)
        self.until = until.astimezone(UTC)
        self._lock = Lock()
        self._at = self.start
        self._since: float | None = None
        self._speed = 1.0
        self.set_speed(speed)
        if not paused:
            self.run()

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def running(self) -> bool:
        return self._since is not None and not self.ended

    @property
    def ended(self) -> bool:
        return self.now() >= self.until

    def now(self) -> datetime:
        with self._lock:
            return self._now()

    def set(self, instant: datetime) -> datetime:
        """Move to a time, clamped to the range; a running clock continues from there."""
        with self._lock:
            self._at = min(max(instant.astimezone(UTC), self.start), self.until)
            if self._since is not None:
                self._since = monotonic()
            return self._at

    def set_speed(self, speed: float) -> None:
        """Run this many times as fast as real time from now on."""
        if not 0 < speed <= SPEED_MAX:
            raise ValueError(f"the speed is {speed:g}; expected a number above 0, such as 3600")
        with self._lock:
            self._rebase()
            self._speed = speed

    def pause(self) -> None:
        with self._lock:
            self._at, self._since = self._now(), None

    def run(self) -> None:
        with self._lock:
            self._rebase()
            self._since = monotonic()

    def _rebase(self) -> None:
        self._at = self._now()
        if self._since is not None:
            self._since = monotonic()

    def _now(self) -> datetime:
        if self._since is None:
            return self._at
        passed_s = (monotonic() - self._since) * self._speed
        left_s = (self.until - self._at).total_seconds()
        return self.until if passed_s >= left_s else self._at + timedelta(seconds=passed_s)
