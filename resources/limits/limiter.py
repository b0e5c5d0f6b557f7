"""Who may send now: the protocol of a limiter, and one that lives in memory.

The transport acquires before every attempt, so that retries pay too.
"""

import time
from collections.abc import Callable
from math import ceil
from threading import Lock
from typing import Final, Protocol

from resources.limits.allowance import ReportedLimits

RATE_LIMITED_WAIT_S: Final = 1.0
"""What a 429 without Retry-After is taken to ask for (interface section 7)."""
JITTER_S: Final = 1.0
"""How long the network may hold up a request without two that were apart coming together."""
_TOKEN: Final = 1 - 1e-9
"""A whole token, but for what adding up fractions rounds away."""
LEAST_WAIT_S: Final = 0.000_5
"""Below it a sleep may not move the clock, and a waiter would spin."""


class Limiter(Protocol):
    """Paces requests, and counts them where it keeps a quota. Shared by threads."""

    def acquire(self, *, for_usage: bool = False) -> None:
        """Return when one request may be sent now; `asks_usage` says that it is for the usage.

        Where a quota is kept it may raise Defer or QuotaUnknown, with `attempts` 0 since
        nothing was sent.
        """

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """Hear of a 429 for rate or burst; None when it named no wait."""

    def no_wait(self, on: bool) -> None:
        """While it is on, whoever would wait long gets a RateHeld."""
        return

    def on_long_wait(self, wait_s: float) -> None:
        """Hear of an answer that was counted, and asks for a wait that is not waited for."""
        self.on_rate_limited(wait_s)

    def on_quota_exhausted(self) -> None:
        """Hear that the service counts the month as used up."""
        return

    def charged(self) -> int:
        """Return what this month was charged so far: told with the usage that is asked next."""
        return 0

    def available(self) -> int | None:
        """Return how many requests this work may still send this month, None as `left`."""
        return None

    def left(self) -> int | None:
        """Return the requests left this month, None for no limit or where it isn't known."""
        return None

    def on_usage(self, account: ReportedLimits, *, charged_before: int | None = None) -> None:
        """Hear an account of the month, asked for when `charged_before` was charged: None now."""
        return


class Unlimited(Limiter):
    """Lets everything through: for a server of one's own."""

    def acquire(self, *, for_usage: bool = False) -> None:
        return None

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        return None


def usable_burst(rate_per_s: float, burst: int, jitter_s: float) -> int:
    """Return how many requests may leave at once so that none arrives too early.

    A request held up by the network arrives together with later ones, so as much of the burst
    as can pile up within `jitter_s` is left unused.
    """
    return max(1, burst - ceil(rate_per_s * jitter_s))


class TokenBucketLimiter(Limiter):
    """An in-process token bucket: full rate, no 429 while it alone uses the key."""

    def __init__(
        self,
        *,
        rate_per_s: float,
        burst: int,
        jitter_s: float = JITTER_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (rate_per_s > 0 and burst >= 1 and jitter_s >= 0):
            raise ValueError(
                f"a limiter needs rate > 0, burst >= 1 and jitter >= 0, "
                f"got {rate_per_s}, {burst} and {jitter_s}"
            )
        self._rate_per_s = rate_per_s
        self._capacity = float(usable_burst(rate_per_s, burst, jitter_s))
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = Lock()
        self._level = self._capacity
        self._seen_at = monotonic()
        self._held_until = self._seen_at

    def acquire(self, *, for_usage: bool = False) -> None:
        """Take a token, sleeping outside the lock until there is one."""
        while True:
            with self._lock:
                wait_s = self._take()
            if wait_s <= 0:
                return
            self._sleep(max(wait_s, LEAST_WAIT_S))

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """Empty the bucket and hold everyone back until the wait is over."""
        with self._lock:
            now = self._monotonic()
            wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
            self._held_until = max(self._held_until, now + wait_s)
            self._level, self._seen_at = 0.0, max(self._seen_at, now)

    def _take(self) -> float:
        """Take a token and return 0, or return the seconds until it is worth looking again."""
        now = self._monotonic()
        gained = max(0.0, now - self._seen_at) * self._rate_per_s
        self._level = min(self._capacity, self._level + gained)
        self._seen_at = max(self._seen_at, now)
        if now < self._held_until:
            return self._held_until - now
        if self._level < _TOKEN:
            return (1 - self._level) / self._rate_per_s
        self._level -= 1
        return 0.0
