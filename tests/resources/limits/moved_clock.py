"""A machine whose clocks are set by tests: they advance only by a sleep, and can be moved."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from resources.http.retry import Timing
from resources.limits.ledger import Ledger, Pace, ReportedLimits
from resources.limits.limiter import Limiter

MARCH = datetime(2026, 3, 10, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)


class Machine:
    """Monotonic time in `ns`, wall time in `wall`. `on_sleep` is called before each sleep."""

    def __init__(self, wall: datetime = MARCH, uptime_s: float = 1_000.0) -> None:
        self.ns = int(uptime_s * 1e9)
        self.wall = wall
        self.boot = "one boot"
        self.slept_s = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.on_sleep()
        self.slept_s += seconds
        self.ns += int(seconds * 1e9)
        self.wall += timedelta(seconds=seconds)

    def timing(self) -> Timing:
        """Return the time of this machine for a client, without chance."""
        return Timing(lambda: self.wall, lambda: self.ns / 1e9, self.sleep, lambda: 0.0)

    def limiter(self, path: Path, pace: Pace, **more: Any) -> Limiter:
        """Return the limiter that a process started now would use."""
        ledger = Ledger(path, now_ns=lambda: self.ns, boot=lambda: self.boot)
        return Limiter(
            ledger, lambda state: pace, clock=lambda: self.wall, sleep=self.sleep, **more
        )


def with_usage(limiter: Limiter, allowed: int | None = 1_000, used: int = 0) -> Limiter:
    """Set the usage of the month, as if the service had just reported it."""
    limiter.on_usage(ReportedLimits(allowed, used, RESET))
    return limiter
