"""The limiters of a client: they wait or refuse before each attempt, so retries count too.

`SharedLimiter` is for all processes of the machine that use a key. It reserves a token under the
ledger's lock, sleeps without the lock, and then checks again: a 429 in any process cancels all
reservations. The month is charged when a request is sent.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from threading import Lock
from typing import Final, Protocol

from resources.errors import Defer, QuotaUnknown, RateHeld
from resources.limits.allowance import (
    SECOND_NS,
    Allowance,
    ChargedRequest,
    Pace,
    QuotaHeaders,
    RefusalReason,
    ReportedLimits,
    Reservation,
    Share,
    adopt_headers,
    answered,
    charge,
    emptied,
    exhausted,
    export_wait_s,
    hold,
    hold_exports,
    is_of_month_before,
    reconcile,
    refusal,
    reserve,
    stated_pace,
)
from resources.limits.ledger import Entry, Ledger
from resources.waits import NOTICED_S, report_wait

RATE_LIMITED_WAIT_S: Final = 1.0
"""The wait after a 429 without Retry-After (interface section 7)."""
JITTER_S: Final = 1.0
"""How long the network may delay a request before it arrives together with a later one."""
_ROUNDING_NS: Final = 1_000
"""A clock in seconds is a rounded number: a token that is valid so soon is valid now."""
LEAST_WAIT_S: Final = 0.000_5
"""A shorter sleep may not advance the clock, and a waiter would spin."""


class Limiter(Protocol):
    """Paces requests, and counts them if it has a quota. Shared by threads."""

    def acquire(
        self, *, for_usage: bool = False, for_export: bool = False
    ) -> ChargedRequest | None:
        """Return when one request may be sent now; `for_usage`: it requests the usage.

        The result is passed to `on_answer`; None if answers are not counted. With a quota it may
        raise Defer or QuotaUnknown, with `attempts` 0 since nothing was sent.
        """

    def on_answer(
        self, sent: ChargedRequest, heard: QuotaHeaders | None, *, counted: bool = True
    ) -> None:
        """Called once for each request of `acquire`, with the headers of its response, None if it
        has none or failed; `counted` is false if the service does not count it."""
        return

    def on_export_limited(self, retry_after_s: float | None) -> None:
        """Called after a 429 to an export; None if it named no wait."""
        self.on_rate_limited(retry_after_s)

    def on_no_export(self) -> None:
        """Called if the path of an export was not found: the next one has not to wait for it."""
        return

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """Called after a 429 for rate or burst; None if it named no wait."""

    def no_wait(self, on: bool) -> None:
        """While it is on, a call that would have to wait long raises RateHeld."""
        return

    def on_long_wait(self, wait_s: float) -> None:
        """Called after a response that was counted and requests a wait that is too long."""
        self.on_rate_limited(wait_s)

    def on_quota_exhausted(
        self, resets_in_s: float | None = None, sent: ChargedRequest | None = None
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

    def export_wait_s(self, exports: int) -> float:
        """Return how long the last of so many exports has to wait for the export interval."""
        return 0.0

    def on_usage(self, account: ReportedLimits, *, sent_before: int | None = None) -> None:
        """Called with a usage requested after the request `sent_before`; None is now."""
        return


def usable_burst(rate_per_s: float, burst: int, jitter_s: float) -> int:
    """Return how many requests may be sent together so that none arrives too early.

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
        self._pace = Pace(rate_per_s, usable_burst(rate_per_s, burst, jitter_s))
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = Lock()
        self._state = Allowance(full_at_ns=self._now_ns())

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
        wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
        with self._lock:
            self._state = hold(self._state, self._pace, self._now_ns(), wait_s)

    def _take(self) -> float:
        """Take a token and return 0, or return the seconds until there may be one."""
        now_ns = self._now_ns()
        after, token = reserve(self._state, self._pace, now_ns)
        if token.at_ns - now_ns > _ROUNDING_NS:
            return (token.at_ns - now_ns) / SECOND_NS
        self._state = after
        return 0.0

    def _now_ns(self) -> int:
        return round(self._monotonic() * SECOND_NS)


_LONGEST_SLEEP_S: Final = 5.0
"""After it a sleeper checks again before its time: the wait may be over."""
_LEAST_RESET_S: Final = 60.0
"""A nearer end of the month is not believed of a 429: the wait may belong to a rate."""
_LEAST_EXPORT_WAIT_S: Final = 10.0
"""A shorter wait of a refused export may belong to the rate of all requests."""
LONGEST_WAIT_S: Final = 120.0
"""A longer wait that the service asked for is not slept through: the work is deferred."""
_LONGEST_NOTED_S: Final = 366 * 86_400.0
_PACING: Final = "the rate of the key allows no request sooner"
_PACING_NOTICED_S: Final = 10.0
"""Shorter waits for the rate are usual: the progress of the work shows them."""
_FURTHEST_S: Final = 30.0
"""A later token is not reserved: a process killed while it waits loses its token."""
_WHY: Final[dict[RefusalReason, str]] = {
    "unknown": "the rest of the monthly quota is not known",
    "spent": "the monthly quota is used up",
    "kept": "the rest of the monthly quota is reserved for other work",
    "capped": "this kind of work has used its share of the month (see the settings)",
    "shared": "this machine has used its share of the month",
}


class SharedLimiter(Limiter):
    """Paces and counts the requests of one kind of work. Shared by threads.

    `share` is its share of the month, or a function that returns the share for what is known of
    the month. `export_interval_s` is the time between two exports of the key.
    """

    def __init__(
        self,
        ledger: Ledger,
        share: Share | Callable[[Allowance], Share] | None = None,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        export_interval_s: float = 0.0,
    ) -> None:
        self.ledger = ledger
        self._share = share if callable(share) else _always(share or Share())
        self._work = self._share(Allowance(0)).work
        self._export_interval_s = export_interval_s
        self.request_account: Callable[[], object] | None = None
        """Requests the usage of the month from the service, through a client of this limiter."""
        self.ahead: Callable[[], timedelta] = timedelta
        """How far the service is ahead of `clock`: the time of a Defer is the service's."""
        self._account_lock = Lock()
        self._clock = clock
        self._sleep = sleep
        self._no_wait = False
        self._asked_until = dict.fromkeys((False, True), datetime.min.replace(tzinfo=UTC))
        """Until when the service asked to wait, for all requests and for exports."""

    def no_wait(self, on: bool) -> None:
        self._no_wait = on

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> ChargedRequest:
        """Return when one request may be sent, and charge it.

        A request for the usage is allowed even if the quota is not known or used up: its response
        ends that. An export also waits until the interval after the one before is over.

        Raises:
            QuotaUnknown: the usage of the month has to be requested first.
            Defer: the quota, or a wait that the service asked for, allows this work no request
                before `resume_at`; nothing was sent.
            RateHeld: `no_wait` is on, and it would have to wait; nothing was sent.
        """
        reserved: Reservation | None = None
        if not for_usage:
            self._ensure_account()
        waited_s, is_reported = 0.0, False
        while True:
            with self.ledger.locked() as entry:
                if not for_usage:
                    self._check(entry.state)
                if not self._no_wait:
                    self._check_hold(entry, for_export=for_export)
                wait_s = export_wait_s(entry.state, entry.now_ns) if for_export else 0.0
                if wait_s <= 0:
                    if reserved is None or reserved.turn != entry.state.turn:
                        reserved = self._reserve(entry)
                    wait_s = (reserved.at_ns - entry.now_ns) / SECOND_NS
                    if wait_s > _FURTHEST_S:
                        reserved = None
                if wait_s <= 0:
                    return self._charge(entry, for_export=for_export)
            if self._no_wait:
                held = RateHeld(f"the next token is free in {wait_s:.1f} s, which is too late")
                held.attempts = 0
                raise held
            longest_s, why = _longest_wait(entry, wait_s, for_export=for_export)
            noticed_s = _PACING_NOTICED_S if why == _PACING else NOTICED_S
            if not is_reported and waited_s + longest_s > noticed_s:
                report_wait(longest_s, why, now=self._clock())
                is_reported = True
            nap_s = min(max(wait_s, LEAST_WAIT_S), _LONGEST_SLEEP_S)
            self._sleep(nap_s)
            waited_s += nap_s

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """After a 429 for rate or burst, which was not counted, make every process wait."""
        wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
        self._note_wait(wait_s)
        with self.ledger.locked() as entry:
            held = hold(entry.state, entry.pace, entry.now_ns, wait_s)
            entry.state = charge(held, self._work, -1)

    def on_export_limited(self, retry_after_s: float | None) -> None:
        """After a 429 to an export, which was not counted, make every export wait.

        If the wait is short or not given, the 429 may be for the rate of all requests: then every
        request waits, and exports for their interval too.
        """
        if retry_after_s is None or retry_after_s < _LEAST_EXPORT_WAIT_S:
            self.on_rate_limited(retry_after_s)
            return
        self._note_wait(retry_after_s, for_export=True)
        with self.ledger.locked() as entry:
            # Its own interval began when it was sent; the service's wait takes its place.
            free = replace(entry.state, export_at_ns=0)
            held = hold_exports(free, entry.now_ns, retry_after_s)
            entry.state = charge(held, self._work, -1)

    def on_no_export(self) -> None:
        with self.ledger.locked() as entry:
            entry.state = replace(entry.state, export_at_ns=0)

    def on_long_wait(self, wait_s: float) -> None:
        """After a response that was counted and requests a wait, make every process wait."""
        self._note_wait(wait_s)
        with self.ledger.locked() as entry:
            entry.state = hold(entry.state, entry.pace, entry.now_ns, wait_s)

    def on_quota_exhausted(
        self, resets_in_s: float | None = None, sent: ChargedRequest | None = None
    ) -> None:
        """Mark the month as used up, and learn its end. The request was not counted."""
        resets_at, now_s = None, self._clock().timestamp()
        if resets_in_s is not None and resets_in_s >= _LEAST_RESET_S:
            resets_at = int(now_s + resets_in_s)
        with self.ledger.locked() as entry:
            if is_of_month_before(entry.state, sent, now_s):
                return
            entry.state = exhausted(charge(entry.state, self._work, -1), resets_at)

    def on_answer(
        self, sent: ChargedRequest, heard: QuotaHeaders | None, *, counted: bool = True
    ) -> None:
        """Count a response, and adopt what it says of the month (allowance.py)."""
        with self.ledger.locked() as entry:
            if heard is not None:
                wall_s = self._clock().timestamp()
                entry.state = adopt_headers(entry.state, heard, sent if counted else None, wall_s)
            # What does not count is in progress until it is taken back.
            if counted:
                entry.state = answered(entry.state)

    def on_stated_pace(self, rate_per_s: float | None, burst: int | None) -> None:
        """Adopt the stated rate and burst, here and in every process that uses the key."""
        with self.ledger.locked() as entry:
            entry.state = stated_pace(entry.state, rate_per_s, burst)
            now = self.ledger.pace_for(entry.state)
            if now.rate_per_s < entry.pace.rate_per_s or now.burst < entry.pace.burst:
                entry.state = emptied(entry.state, now, entry.now_ns)

    def resets_in_s(self) -> float | None:
        left_s = self.ledger.peek().resets_at - self._clock().timestamp()
        return left_s if left_s > 0 else None

    def sent(self) -> int:
        return self.ledger.peek().sent

    def available(self) -> int | None:
        state = self.ledger.peek()
        return state.available(self._share(state), self._clock().timestamp())

    def left(self) -> int | None:
        """Return the requests left this month to this machine, None if nothing is known."""
        state = self.ledger.peek()
        left, share = state.left(self._clock().timestamp()), self._share(state)
        if share.machine is None:
            return left
        own = max(0, share.machine + share.floor - sum(state.spent))
        return own if left is None else min(left, own)

    def export_wait_s(self, exports: int) -> float:
        if exports < 1:
            return 0.0
        first_s = export_wait_s(self.ledger.peek(), self.ledger.now_ns())
        return first_s + (exports - 1) * (self._export_interval_s + JITTER_S)

    def on_usage(self, account: ReportedLimits, *, sent_before: int | None = None) -> None:
        """Adopt a usage that was requested after the request `sent_before`; None is now."""
        with self.ledger.locked() as entry:
            # The request for the usage is in both counts.
            since = 0
            if sent_before is not None:
                since = max(0, entry.state.sent - sent_before - 1)
            wall_s = self._clock().timestamp()
            entry.state = reconcile(entry.state, account, charged_since=since, wall_s=wall_s)

    def _charge(self, entry: Entry, *, for_export: bool) -> ChargedRequest:
        before = entry.state.answered
        entry.state = charge(entry.state, self._work)
        if for_export and self._export_interval_s:
            # The service counts from its arrival, which the network may delay.
            wait_s = self._export_interval_s + JITTER_S
            entry.state = hold_exports(entry.state, entry.now_ns, wait_s)
        return ChargedRequest(entry.state.sent, before, entry.state.resets_at)

    def _reserve(self, entry: Entry) -> Reservation:
        """Return the next token, reserved unless it is valid much later."""
        after, reserved = reserve(entry.state, entry.pace, entry.now_ns)
        if reserved.at_ns - entry.now_ns <= _FURTHEST_S * SECOND_NS:
            entry.state = after
        return reserved

    def _ensure_account(self) -> None:
        """Request the usage of the month if it is not known, in one thread only."""
        if self.request_account is None or not self._is_account_unknown():
            return
        with self._account_lock:
            if self._is_account_unknown():
                self.request_account()

    def _is_account_unknown(self) -> bool:
        state, now_s = self.ledger.peek(), self._clock().timestamp()
        return refusal(state, self._share(state), now_s) == "unknown"

    def _check_hold(self, entry: Entry, *, for_export: bool) -> None:
        """Raise Defer if the service asked for a wait that is too long to sleep through."""
        held_s, longest_s = _held_s(entry), LONGEST_WAIT_S
        is_of_exports = for_export and held_s <= longest_s
        if is_of_exports:
            held_s = export_wait_s(entry.state, entry.now_ns)
            longest_s = max(longest_s, self._export_interval_s + 2 * JITTER_S)
        if held_s <= longest_s:
            return
        now = self._service_now()
        deferral = Defer(
            "the service asked for a wait that is not over",
            resume_at=max(self._asked_until[is_of_exports], now + timedelta(seconds=held_s)),
            reason="asked_to_wait",
        )
        deferral.attempts = 0
        raise deferral

    def _note_wait(self, wait_s: float, *, for_export: bool = False) -> None:
        """Remember until when the service asked to wait: the ledger holds for less time."""
        until = self._service_now() + timedelta(seconds=min(wait_s, _LONGEST_NOTED_S))
        self._asked_until[for_export] = until

    def _service_now(self) -> datetime:
        return datetime.fromtimestamp(self._clock().timestamp(), UTC) + self.ahead()

    def _check(self, state: Allowance) -> None:
        why = refusal(state, self._share(state), self._clock().timestamp())
        if why is None:
            return
        if why == "unknown":
            raise QuotaUnknown(_WHY[why])
        deferral = Defer(
            f"{_WHY[why]} ({self._work}: {state.allowed - state.used:,} of {state.allowed:,} left)",
            resume_at=datetime.fromtimestamp(state.resets_at, UTC) + self.ahead(),
            reason="quota",
        )
        deferral.attempts = 0
        raise deferral


def _held_s(entry: Entry) -> float:
    return (entry.state.held_until_ns - entry.now_ns) / SECOND_NS


def _longest_wait(entry: Entry, wait_s: float, *, for_export: bool) -> tuple[float, str]:
    """Return how long a request waits, and for what."""
    export_s = export_wait_s(entry.state, entry.now_ns) if for_export else 0.0
    held_s = _held_s(entry)
    if export_s >= max(held_s, wait_s):
        return export_s, "the interval between two exports (ALMANAC_EXPORT_INTERVAL_S)"
    if held_s >= wait_s:
        return held_s, "the service asked for it"
    return wait_s, _PACING


def _always(share: Share) -> Callable[[Allowance], Share]:
    return lambda state: share
