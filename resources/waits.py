"""How often a call is attempted, how long the client waits, and the report of each wait.

An attribute of the error (`CatalogError.transient`) states whether it is retried. A command prints
waits on standard error; a run of Dagster logs them as events (`assets/landed.py`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from math import ceil
from random import SystemRandom
from typing import Final, TypeVar

from almanac.core import progress
from almanac.core.timestamps import utc_now
from resources.errors import CatalogError, RetryLater

T = TypeVar("T")
NOTICED_S: Final = 2.0
"""A call that waits for less time in total reports nothing."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Sources of time and randomness: `clock` gives aware UTC times, `monotonic` seconds, `random`
    a number from 0 to 1."""

    clock: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    random: Callable[[], float] = SystemRandom().random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of retrying, in seconds. No further attempt begins after `total_s`."""

    attempts: int = 6
    export_attempts: int = 2
    """An export is large and its attempts are a minute apart, so the other pulls of the day do not
    wait for it."""
    total_s: float = 180.0
    base_s: float = 0.5
    cap_s: float = 30.0
    slow_after_s: float = 20.0
    """A 500 that took this long is TooSlow (the service's own limit is 30 s)."""

    def backoff_s(self, failures: int, chance: float) -> float:
        """Return the wait with jitter after so many failures: from 0 to a limit that doubles."""
        return float(chance * min(self.cap_s, self.base_s * 2 ** min(failures - 1, 60)))


def with_retries(
    attempt: Callable[[int], T], *, policy: RetryPolicy, timing: Timing, for_export: bool = False
) -> T:
    """Call `attempt(number)` until it returns, and return that. A noticeable wait is reported.

    Raises:
        CatalogError: the first failure that is not transient, or the last transient one, with
            `attempts` set to the requests sent.
    """
    began = timing.monotonic()
    attempts = min(policy.attempts, policy.export_attempts) if for_export else policy.attempts
    for number in count(1):
        try:
            return attempt(number)
        except CatalogError as error:
            # `attempts` is 0 in an error of the limiter: nothing was sent this time.
            error.attempts += number - 1
            asked_s = error.wait_s if isinstance(error, RetryLater) else 0.0
            wait_s = asked_s + policy.backoff_s(number, timing.random())
            waited_s = timing.monotonic() - began + wait_s
            is_last = number >= attempts or waited_s > policy.total_s
            if not error.transient or is_last:
                raise
            # The next export also waits for the interval, which the limiter reports.
            if for_export or waited_s > NOTICED_S:
                again = f"{error.happened}; then attempt {number + 1} of {attempts}"
                report_wait(wait_s, again, now=timing.clock())
            timing.sleep(wait_s)
    raise AssertionError("unreachable")


def report_wait(seconds: float, why: str, *, now: datetime) -> None:
    """Report a wait that begins now, in the thread that is about to wait."""
    ends_at = now + timedelta(seconds=seconds)
    progress.wait(f"Waiting {ceil(seconds)} s, until {ends_at:%H:%M:%S} UTC: {why.rstrip('.')}.")
