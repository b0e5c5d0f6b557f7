"""The protocol of a limiter, and a limiter in memory.

The transport acquires before every attempt, so retries count too.
"""

import time
from collections.abc import Callable
from math import ceil
from threading import Lock
from typing import Final, Protocol

from resources.limits.allowance import Charged, QuotaHeaders, ReportedLimits

RATE_LIMITED_WAIT_S: Final = 1.0
"""The wait after a 429 without Retry-After (interface section 7)."""
JITTER_S: Final = 1.0
"""How long the network may delay a request before it arrives together with a later one."""
_TOKEN: Final = 1 - 1e-9
"""A whole token, less the rounding of added fractions."""
LEAST_WAIT_S: Final = 0.000_5
"""A shorter sleep may not advance the clock, and a waiter would spin."""


class Limiter(Protocol):
    """Paces requests, and counts them if it has a quota. Shared by threads."""

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Charged | None:
        """Return when one request may be sent now; `for_usage`: it requests the usage.

        The result is passed to `on_answer`; None if answers are not counted. With a quota it may
        raise Defer or QuotaUnknown, with `attempts` 0 since nothing was sent.
        """

    def on_answer(self, sent: Charged, heard: QuotaHeaders | None, *, counted: bool = True) -> None:
        """Called once for each request of `acquire`, with the headers of its answer, None if it
        has none or failed; `counted` is false if the service does not count it."""
        return

    def on_export_limited(self, retry_after_s: float | None) -> None:
        """Called after a 429 to an export; None if it named no wait."""
        self.on_rate_limited(retry_after_s)

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """Called after a 429 for rate or burst; None if it named no wait."""

    def no_wait(self, on: bool) -> None:
        """While it is on, a call that would have to wait long raises RateHeld."""
        return

    def on_long_wait(self, wait_s: float) -> None:
        """Called after an answer that was counted and requests a wait that is too long."""
        self.on_rate_limited(wait_s)

    def on_quota_exhausted(
        self, resets_in_s: float | None = None, sent: Charged | None = None
    ) -> None:
        """Called when the service answers the request `sent` that the month is used up, and when
        the month ends."""
        return

    def resets_in_s(self) -> float | None:
        """Return when the month ends, as last heard, in seconds; None if it isn't known."""
        return None

    def on_stated_pace(self, rate_per_s: float | None, burst: int | None) -> None:
        """Called with the rate and burst that the service states for the key; None is neither."""
        return

    def sent(self) -> int:
        """Return the number of the last request; passed to `on_usage` with the next usage."""
        return 0

    def available(self) -> int | None:
        """Return how many requests this work may still send this month, None as for `left`."""
        return None

    def left(self) -> int | None:
        """Return the requests left this month, None without a limit or if it isn't known."""
        return None

    def on_usage(self, account: ReportedLimits, *, sent_before: int | None = None) -> None:
        """Called with a usage requested after the request `sent_before`; None is now."""
        return


class Unlimited(Limiter):
    """Allows every request: for a server of one's own."""

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> None:
        return None

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        return None


def usable_burst(rate_per_s: float, burst: int, jitter_s: float) -> int:
    """Return how many requests may be sent at once so that none arrives too early.

    A request delayed by the network arrives together with later ones, so the part of the burst
    that can accumulate within `jitter_s` is left unused.
    """
    return max(1, burst - ceil(rate_per_s * jitter_s))


class TokenBucketLimiter(Limiter):
    """A token bucket in one process: full rate, and no 429 while nothing else uses the key."""

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

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> None:
        """Take a token; sleep outside of the lock until there is one."""
        while True:
            with self._lock:
                wait_s = self._take()
            if wait_s <= 0:
                return
            self._sleep(max(wait_s, LEAST_WAIT_S))

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """Empty the bucket; no request is sent until the wait is over."""
        with self._lock:
            now = self._monotonic()
            wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
            self._held_until = max(self._held_until, now + wait_s)
            self._level, self._seen_at = 0.0, max(self._seen_at, now)

    def _take(self) -> float:
        """Take a token and return 0, or return the seconds until there may be one."""
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
