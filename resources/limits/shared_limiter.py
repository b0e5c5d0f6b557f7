"""The limiter of a key that every process of the machine shares.

A token is reserved under the ledger's lock; the caller sleeps without the lock and then checks
again, since a 429 in any process cancels all reservations. The month's quota is charged when the
request is sent. Belongs here: waiting and refusing. Does not: the arithmetic (allowance.py).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from resources.errors import Defer, QuotaUnknown, RateHeld
from resources.limits.allowance import (
    SECOND_NS,
    Allowance,
    RefusalReason,
    ReportedLimits,
    Reservation,
    Share,
    charge,
    exhausted,
    hold,
    reconcile,
    refusal,
    reserve,
)
from resources.limits.ledger import Entry, Ledger
from resources.limits.limiter import LEAST_WAIT_S, RATE_LIMITED_WAIT_S, Limiter

_LONGEST_SLEEP_S: Final = 5.0
"""After it a sleeper checks again before its time: the wait may be over."""
_FURTHEST_NS: Final = 30_000_000_000
"""A later token is not reserved: a process killed while it waits loses its token."""
_WHY: Final[dict[RefusalReason, str]] = {
    "unknown": "the rest of the monthly quota is not known",
    "spent": "the monthly quota is used up",
    "kept": "the rest of the monthly quota is reserved for other work",
    "capped": "this kind of work has used its share of the month (see the settings)",
    "shared": "this machine has used its share of the month",
}


class SharedLimiter(Limiter):
    """Paces and counts the requests of one kind of work. Shared by threads."""

    def __init__(
        self,
        ledger: Ledger,
        share: Share | None = None,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.ledger = ledger
        self.share = share or Share()
        self.request_account: Callable[[], object] | None = None
        """Requests the usage of the month from the service, through a client of this limiter."""
        self.ahead: Callable[[], timedelta] = timedelta
        """How far the service is ahead of `clock`: the time of a Defer is the service's."""
        self._account_lock = Lock()
        self._clock = clock
        self._sleep = sleep
        self._no_wait = False

    def no_wait(self, on: bool) -> None:
        self._no_wait = on

    def acquire(self, *, for_usage: bool = False) -> None:
        """Return when one request may be sent, and charge it.

        A request for the usage is allowed even if the quota is not known or used up: its answer
        ends that.

        Raises:
            QuotaUnknown: the usage of the month has to be requested first.
            Defer: the quota allows this work no request before `resume_at`; nothing was sent.
            RateHeld: `no_wait` is on, and it would have to wait; nothing was sent.
        """
        reserved: Reservation | None = None
        if not for_usage:
            self._ensure_account()
        while True:
            with self.ledger.locked() as entry:
                if not for_usage:
                    self._check(entry.state)
                if reserved is None or reserved.turn != entry.state.turn:
                    reserved = self._reserve(entry)
                wait_s = _LONGEST_SLEEP_S
                if reserved is not None:
                    wait_s = (reserved.at_ns - entry.now_ns) / SECOND_NS
                if wait_s <= 0:
                    entry.state = charge(entry.state, self.share.work)
                    return
            if self._no_wait:
                held = RateHeld(f"the next token is free in {wait_s:.1f} s, which is too late")
                held.attempts = 0
                raise held
            self._sleep(min(max(wait_s, LEAST_WAIT_S), _LONGEST_SLEEP_S))

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        """After a 429 for rate or burst, which was not counted, make every process wait."""
        wait_s = RATE_LIMITED_WAIT_S if retry_after_s is None else retry_after_s
        with self.ledger.locked() as entry:
            held = hold(entry.state, self.ledger.pace, entry.now_ns, wait_s)
            entry.state = charge(held, self.share.work, -1)

    def on_long_wait(self, wait_s: float) -> None:
        """After an answer that was counted and requests a wait, make every process wait."""
        with self.ledger.locked() as entry:
            entry.state = hold(entry.state, self.ledger.pace, entry.now_ns, wait_s)

    def on_quota_exhausted(self) -> None:
        """Mark the month as used up. The request was not counted."""
        with self.ledger.locked() as entry:
            entry.state = exhausted(charge(entry.state, self.share.work, -1))

    def charged(self) -> int:
        """Return the requests charged so far; passed to `on_usage` with the next usage."""
        return self.ledger.peek().used

    def available(self) -> int | None:
        """Return how many requests this work may still send this month, None as for `left`."""
        return self.ledger.peek().available(self.share, self._clock().timestamp())

    def left(self) -> int | None:
        """Return the requests left this month to this machine, None if nothing is known."""
        state = self.ledger.peek()
        left = state.left(self._clock().timestamp())
        if self.share.machine is None:
            return left
        own = max(0, self.share.machine + self.share.floor - sum(state.spent))
        return own if left is None else min(left, own)

    def on_usage(self, account: ReportedLimits, *, charged_before: int | None = None) -> None:
        """Adopt a usage that was requested when `charged_before` was charged; None is now."""
        with self.ledger.locked() as entry:
            # The request for the usage is in both counts.
            since = 0
            if charged_before is not None:
                since = max(0, entry.state.used - charged_before - 1)
            entry.state = reconcile(entry.state, account, charged_since=since)

    def _reserve(self, entry: Entry) -> Reservation | None:
        after, reserved = reserve(entry.state, self.ledger.pace, entry.now_ns)
        if reserved.at_ns - entry.now_ns > _FURTHEST_NS:
            return None
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
        now_s = self._clock().timestamp()
        return refusal(self.ledger.peek(), self.share, now_s) == "unknown"

    def _check(self, state: Allowance) -> None:
        why = refusal(state, self.share, self._clock().timestamp())
        if why is None:
            return
        if why == "unknown":
            raise QuotaUnknown(_WHY[why])
        deferral = Defer(
            f"{_WHY[why]} ({self.share.work}: {state.allowed - state.used:,} of "
            f"{state.allowed:,} left)",
            resume_at=datetime.fromtimestamp(state.resets_at, UTC) + self.ahead(),
            reason="quota",
        )
        deferral.attempts = 0
        raise deferral
