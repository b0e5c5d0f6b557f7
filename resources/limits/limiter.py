"""The limiter of a client: it waits or refuses before each attempt, so retries count too.

A request takes a token from the ledger's row, or gets the time to wait. It sleeps without the lock
and then checks again, so all processes notice a 429 of any process. A long wait is reported with
its reason. The month is charged when a request is sent.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from threading import Lock
from typing import Final

from almanac.core import progress
from resources.errors import Defer, QuotaUnknown, Reason
from resources.limits.decision import (
    LONGEST_HOLD_S,
    LONGEST_WAIT_S,
    check_quota,
    find_wait,
)
from resources.limits.ledger import (
    SAME_MONTH_S,
    SECOND_NS,
    UNKNOWN,
    UNLIMITED,
    Allowance,
    Ledger,
    Pace,
    QuotaHeaders,
    ReportedLimits,
    next_reset,
)

NOTICED_S: Final = 2.0
"""A call that waits for less time in total reports nothing."""
RATE_LIMITED_WAIT_S: Final = 1.0
"""The wait after a 429 without Retry-After (interface section 7)."""
JITTER_S: Final = 1.0
"""How long the network may delay a request before it arrives together with a later one."""
_LONGEST_SLEEP_S: Final = 5.0
"""The longest sleep. A waiting process then checks again, since the wait may be over."""
_LEAST_SLEEP_S: Final = 0.000_5
_LEAST_EXPORT_WAIT_S: Final = 10.0
"""A shorter wait of a refused export may belong to the rate of all requests."""
_ALONE_AFTER_NS: Final = 120 * SECOND_NS
"""The longest time between sending a request and the service counting it."""
_LEAST_RESET_S: Final = 60.0
"""If a 429 states a month end nearer than this, it is ignored: it may be a rate limit."""
_WINDOW_S: Final = 3_600
"""A limit with a nearer reset may be a rate limit: some services report it in these headers."""
_SAME_RESET_S: Final = 60
_PACING_NOTICED_S: Final = 10.0
"""Shorter waits for the rate are usual: the progress of the work shows them."""


def report_wait(seconds: float, why: str, *, now: datetime) -> None:
    """Report a wait that begins now, in the thread that is about to wait."""
    ends_at = now + timedelta(seconds=seconds)
    progress.wait(f"Waiting {ceil(seconds)} s, until {ends_at:%H:%M:%S} UTC: {why.rstrip('.')}.")


def usable_burst(rate_per_s: float, burst: int) -> int:
    """Return how many requests may be sent together so that none arrives too early.

    A request delayed by the network arrives together with later ones, so the part of the burst
    that can accumulate within JITTER_S is left unused.
    """
    return max(1, burst - ceil(rate_per_s * JITTER_S))


@dataclass(frozen=True, slots=True)
class Permit:
    """A request that may be sent: the `own` requests of the month that ends at `resets_at`, with
    this one. `alone`: no other request is on its way."""

    own: int
    resets_at: int
    alone: bool


@dataclass(eq=False, repr=False)
class Limiter:
    """Paces and counts the requests of one kind of work. Shared by threads.

    `pace` and `reserve`, the requests that are left for other work, are for what the service has
    stated. `machine_quota` is for this machine. `clock` gives the service's time.
    `export_interval_s` is the time between two exports of the key.
    """

    ledger: Ledger
    pace: Callable[[Allowance], Pace]
    _: KW_ONLY
    clock: Callable[[], datetime]
    reserve: Callable[[Allowance], int] = lambda state: 0
    machine_quota: int | None = None
    sleep: Callable[[float], None] = time.sleep
    export_interval_s: float = 0.0
    request_account: Callable[[], object] | None = field(init=False, default=None)
    """Requests the usage of the month from the service, through a client of this limiter."""

    def __post_init__(self) -> None:
        self._usage_permit: Permit | None = None
        self._account_lock = Lock()
        self._queue = Lock()

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Permit:
        """Return when one request may be sent, and charge it.

        A request for the usage is allowed even if the quota is not known or used up: its response
        ends that. An export also waits until the interval after the one before is over.

        Raises:
            QuotaUnknown: the usage of the month has to be requested first.
            Defer: the quota, or a wait that the service asked for, allows this work no request
                before `resume_at`; nothing was sent.
        """
        if not for_usage:
            self._learn_month()
        waited_s, is_reported = 0.0, False
        while True:
            # One thread of a process asks and sleeps: together they would ask for one token.
            with nullcontext() if for_export else self._queue:
                now = self.clock()
                taken = self._take(now, for_usage=for_usage, for_export=for_export)
                if isinstance(taken, Permit):
                    return taken
                wait_s = (taken.until - now).total_seconds()
                noticed_s = _PACING_NOTICED_S if taken.code == "rate" else NOTICED_S
                if not is_reported and waited_s + wait_s > noticed_s:
                    report_wait(wait_s, taken.sentence, now=now)
                    is_reported = True
                nap_s = min(max(wait_s, _LEAST_SLEEP_S), _LONGEST_SLEEP_S)
                self.sleep(nap_s)
                waited_s += nap_s

    def on_answer(
        self, permit: Permit, heard: QuotaHeaders | None, *, counted: bool = True
    ) -> None:
        """Adopt the monthly usage that a response states; `counted` is false for a 429.

        A limit that resets soon is a rate limit, not the monthly quota, and is ignored.
        """
        if counted and heard is None:
            return
        with self.ledger.locked() as state:
            if not counted or heard is None:
                back = 1 if _is_of_month(permit, state) else 0
                state.used, state.own = max(0, state.used - back), max(0, state.own - back)
                return
            resets_at = None
            if heard.resets_in_s is not None:
                resets_at = int(self._now_s() + heard.resets_in_s)
                is_known = abs(resets_at - state.resets_at) <= _SAME_RESET_S
                if not is_known and heard.resets_in_s <= _WINDOW_S:
                    return
            elif heard.allowed != state.allowed:
                return
            allowed = state.allowed if heard.allowed is None else heard.allowed
            count = None
            if heard.remaining is not None and allowed >= heard.remaining:
                count = allowed, allowed - heard.remaining
            self._adopt(state, count, resets_at, permit)

    def on_usage(self, account: ReportedLimits) -> None:
        """Adopt the monthly usage from the response to a request of this limiter."""
        allowed = UNLIMITED if account.allowed is None else account.allowed
        permit, self._usage_permit = self._usage_permit, None
        with self.ledger.locked() as state:
            resets_at, now_s = int(account.resets_at.timestamp()), self._now_s()
            if resets_at <= now_s:
                # A reset in the past says nothing.
                resets_at = state.resets_at if state.resets_at > now_s else self._usual_reset()
            self._adopt(state, (allowed, account.used), resets_at, permit)
            # What the service states goes before the clock.
            state.months.pop(state.earlier_reset(now_s), None)

    def count_here(self, quota: int | None) -> None:
        """Use a given quota and this machine's own count, for a service that reports no usage."""
        with self.ledger.locked() as state:
            if state.is_unknown(self._now_s()):
                resets_at = state.earlier_reset(self._now_s()) or self._usual_reset()
                if state.resets_at:
                    state.turn(resets_at)
                state.resets_at = resets_at
            state.allowed = UNLIMITED if quota is None else quota

    def on_stated_pace(self, rate_per_s: float | None, burst: int | None) -> None:
        """Adopt the stated rate and burst in every process; impossible values are ignored."""
        with self.ledger.locked() as state:
            if rate_per_s is not None and rate_per_s >= 0.01:
                state.rate_per_s = min(rate_per_s, 1e6)
            if burst is not None and burst >= 1:
                state.burst = min(burst, 1_000_000)

    def on_rate_limited(self, retry_after_s: float | None, *, for_export: bool = False) -> None:
        """Make every process wait, as a response requested; `None` if the response stated no wait.

        The wait after a refused export applies to exports only, unless it is so short that it may
        be the rate limit of all requests.
        """
        wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
        with self.ledger.locked() as state:
            now_ns = self.ledger.now_ns()
            until_ns = now_ns + int(min(max(0.0, wait_s), LONGEST_HOLD_S) * SECOND_NS)
            if for_export and wait_s >= _LEAST_EXPORT_WAIT_S:
                state.export_at_ns = until_ns
                return
            state.tokens, state.at_ns = 0.0, now_ns
            state.held_until_ns = max(state.held_until_ns, until_ns)

    def on_quota_exhausted(
        self, resets_in_s: float | None = None, permit: Permit | None = None
    ) -> None:
        """Mark the month as used up and record its end, unless the response belongs to another
        month."""
        with self.ledger.locked() as state:
            if state.allowed < 0 or not _is_of_month(permit, state):
                return
            state.used = max(state.used, state.allowed)
            if resets_in_s is not None and resets_in_s >= _LEAST_RESET_S:
                state.resets_at = int(self._now_s() + resets_in_s)

    def resets_in_s(self) -> float | None:
        """Return the last reported end of the month, in seconds; None if it isn't known."""
        with self.ledger.locked() as state:
            left_s = state.resets_at - self._now_s()
        return left_s if left_s > 0 else None

    def left(self, *, reserve: bool = False) -> int | None:
        """Return the requests left this month to this machine, None if it isn't known or limited.

        With `reserve`, the requests reserved for other work are not included.
        """
        with self.ledger.locked() as state:
            if state.is_unknown(self._now_s()):
                return None
            left = state.left(self.machine_quota)
            return max(0, left - self.reserve(state)) if left and reserve else left

    def _learn_month(self) -> None:
        """Request the usage of the month if it is not known; one thread does."""
        with self._account_lock:
            with self.ledger.locked() as state:
                is_unknown = state.is_unknown(self._now_s())
            if is_unknown and self.request_account is not None:
                self.request_account()

    def _take(self, now: datetime, *, for_usage: bool, for_export: bool) -> Permit | Reason:
        """Take a token and return a permit, or why it has to wait."""
        longest_export_s = max(LONGEST_WAIT_S, self.export_interval_s + 2 * JITTER_S)
        with self.ledger.locked() as state:
            now_ns, pace = self.ledger.now_ns(), self.pace(state)
            reason = None
            if not for_usage:
                if state.is_unknown(self._now_s()):
                    unknown = QuotaUnknown("the rest of the monthly quota is not known")
                    unknown.attempts = 0
                    raise unknown
                reason = check_quota(state, self.machine_quota, self.reserve(state))
            if reason is None:
                most_s = longest_export_s if for_export else None
                reason = find_wait(state, pace, now_ns, now, most_s)
            if reason is None:
                alone = now_ns - state.at_ns > _ALONE_AFTER_NS
                state.tokens, state.at_ns = state.tokens_at(now_ns, pace) - 1, now_ns
                state.used, state.own = state.used + 1, state.own + 1
                if for_export and self.export_interval_s:
                    # The service counts from its arrival, which the network may delay.
                    interval_s = self.export_interval_s + JITTER_S
                    state.export_at_ns = now_ns + int(interval_s * SECOND_NS)
                permit = Permit(state.own, state.resets_at, alone)
                self._usage_permit = permit if for_usage else self._usage_permit
                return permit
        if reason.is_deferral:
            raise Defer(reason, attempts=0)
        return reason

    def _adopt(
        self,
        state: Allowance,
        count: tuple[int, int] | None,
        resets_at: int | None,
        permit: Permit | None,
    ) -> None:
        """Adopt the quota and use of the month as the service counts them, and its end.

        The count includes the request of `permit`; later requests are added. The service's count
        may already include some later requests, and may lack earlier requests in transit. So a
        lower count than ours is adopted only if the request was alone.
        """
        is_of_month, is_first = _is_of_month(permit, state), state.allowed == UNKNOWN
        since = 0 if permit is None else max(0, state.own - permit.own)
        is_next = resets_at is not None and (
            0 < state.resets_at <= self._now_s() + SAME_MONTH_S
            and resets_at > state.resets_at + SAME_MONTH_S
        )
        is_back = resets_at is not None and resets_at < state.resets_at - SAME_MONTH_S
        if resets_at is not None and (is_next or (is_back and state.counted(resets_at))):
            state.turn(resets_at)
        if resets_at is not None and abs(resets_at - state.resets_at) > _SAME_RESET_S:
            state.resets_at = resets_at
        if count is not None and is_of_month:
            state.allowed, used = count
            is_alone = permit is not None and permit.alone
            least = 0 if is_first or is_next or is_alone else state.used
            state.used = max(least, used + since)

    def _now_s(self) -> float:
        return self.clock().timestamp()

    def _usual_reset(self) -> int:
        return int(next_reset(self.clock().astimezone(UTC)).timestamp())


def _is_of_month(permit: Permit | None, state: Allowance) -> bool:
    """Whether a request was sent in the present month; without a known month, it was."""
    if permit is None or permit.resets_at == 0:
        return True
    return abs(permit.resets_at - state.resets_at) <= SAME_MONTH_S
