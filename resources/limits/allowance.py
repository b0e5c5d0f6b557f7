"""The allowance of a key: a token bucket and the month's quota, as one value.

Pure functions of state and time that return the next state. Belongs here: the arithmetic of
limits. Does not: where the value is stored (ledger.py), waiting (limiter.py).
Monotonic times are nanoseconds of one boot; wall times are seconds since 1970.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from catalog.contract.plans import month_start, next_month
from catalog.contract.token_bucket import TokenBucket

Work = Literal["daily", "polls", "backfill"]
WORKS: Final[tuple[Work, ...]] = ("daily", "polls", "backfill")
UNKNOWN: Final = -2
UNLIMITED: Final = -1
LONGEST_HOLD_S: Final = 900.0
"""After it a request is sent anyway: an unreadable wait must not end the work."""
SECOND_NS: Final = 1_000_000_000
_SAME_MONTH_S: Final = 86_400
"""How far two accounts of one reset may differ: they are by two clocks."""
_UNEVEN_S: Final = 60
"""A reset that moves by less has not moved: each account is rounded, and by its own clock."""
_WINDOW_S: Final = 3_600
"""A limit with a nearer reset may be a rate limit: some services report it in these headers."""
_SLOWEST_PER_S: Final = 0.01
_FASTEST_PER_S: Final = 1e6
_BURST_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """A bucket: tokens for each second, and how many it holds."""

    rate_per_s: float
    burst: int

    def __post_init__(self) -> None:
        if not (self.rate_per_s > 0 and self.burst >= 1):
            raise ValueError(
                f"a pace needs rate > 0 and burst >= 1, got {self.rate_per_s} and {self.burst}"
            )

    @property
    def bucket(self) -> TokenBucket:
        """The bucket, in nanoseconds. The interval is rounded up: the rate is never exceeded."""
        return TokenBucket(-int(-SECOND_NS // self.rate_per_s), self.burst)


@dataclass(frozen=True, slots=True)
class ReportedLimits:
    """The usage of the month by the service; `allowed` None means no quota, `resets_at` is UTC."""

    allowed: int | None
    used: int
    resets_at: datetime


@dataclass(frozen=True, slots=True)
class QuotaHeaders:
    """The quota of the month by the headers of a response; None is not stated.

    `reset_at` is by the service's clock, `resets_in_s` counts from the response.
    `is_reset_doubted`: the stated reset can't be the end of a month: it is past or too far ahead.
    """

    allowed: int | None = None
    remaining: int | None = None
    reset_at: datetime | None = None
    resets_in_s: float | None = None
    is_reset_doubted: bool = False


@dataclass(frozen=True, slots=True)
class ChargedRequest:
    """A request that was charged: its number, and how many were answered before it was sent.

    `resets_at` is the end of the month to which it was charged, 0 if none was known.
    """

    number: int
    answered: int
    resets_at: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the month for one kind of work.

    `floor` is left for other work, `cap` bounds this one, `machine` all work of this machine.
    """

    work: Work = "daily"
    floor: int = 0
    cap: int | None = None
    machine: int | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """The shared state of one key.

    `full_at_ns` is when the bucket is full again (GCRA's theoretical arrival time); `turn` counts
    how often all reservations were cancelled. `excess` is by how much the service's last account of
    the month was below ours, `spent` is what each kind of work was charged. `rate_per_s` and
    `burst` are what the service states for the key, 0 if it states none. `sent` and `answered`
    number the charged requests of this machine; `export_at_ns` is when the next export may be sent.
    """

    full_at_ns: int
    held_until_ns: int = 0
    turn: int = 0
    allowed: int = UNKNOWN
    used: int = 0
    resets_at: int = 0
    excess: int = 0
    spent: tuple[int, int, int] = (0, 0, 0)
    rate_per_s: float = 0.0
    burst: int = 0
    sent: int = 0
    answered: int = 0
    export_at_ns: int = 0

    def left(self, wall_s: float) -> int | None:
        """Return the requests left this month, None without a limit or if it isn't known."""
        if self.allowed < 0 or wall_s >= self.resets_at:
            return None
        return max(0, self.allowed - self.used)

    def available(self, share: Share, wall_s: float) -> int | None:
        """Return how many requests a share may still send, None as for `left`."""
        left, spent = self.left(wall_s), self.spent[WORKS.index(share.work)]
        bounds = [] if left is None else [left - share.floor]
        if share.cap is not None:
            bounds.append(share.cap - spent)
        if share.machine is not None:
            bounds.append(share.machine - sum(self.spent))
        return max(0, min(bounds)) if bounds else None


@dataclass(frozen=True, slots=True)
class Reservation:
    """A token that is valid from `at_ns` on, as long as `turn` is the same."""

    at_ns: int
    turn: int


RefusalReason = Literal["unknown", "spent", "kept", "capped", "shared"]
"""Why the quota allows no request: no account of the month yet; it is used up; the rest is reserved
for other work; this kind of work has used its share; this machine has used its share."""


def next_reset(now: datetime) -> datetime:
    """Return the first of the next month, 00:00 UTC: the reset if the service reports none."""
    return next_month(month_start(now))


def unknown(pace: Pace, now_ns: int, turn: int = 0) -> Allowance:
    """Return the state of a key about which nothing is known: an empty bucket and no quota."""
    return Allowance(full_at_ns=pace.bucket.empty(now_ns), turn=turn)


def of_another_boot(state: Allowance, pace: Pace, now_ns: int) -> Allowance:
    """Return what is still known: the bucket belongs to a boot, the spent requests to the month."""
    empty = unknown(pace, now_ns, turn=state.turn + 1)
    return replace(
        empty,
        used=state.used,
        resets_at=state.resets_at,
        spent=state.spent,
        rate_per_s=state.rate_per_s,
        burst=state.burst,
        sent=state.sent,
        answered=state.sent,
    )


def stated_pace(state: Allowance, rate_per_s: float | None, burst: int | None) -> Allowance:
    """Adopt the rate and burst that the service states; what it leaves out, or what no key can
    have, changes nothing."""
    if rate_per_s is not None and rate_per_s >= _SLOWEST_PER_S:
        state = replace(state, rate_per_s=min(rate_per_s, _FASTEST_PER_S))
    if burst is not None and burst >= 1:
        state = replace(state, burst=min(burst, _BURST_MAX))
    return state


def emptied(state: Allowance, pace: Pace, now_ns: int) -> Allowance:
    """Empty the bucket and cancel all reservations: they were made at a faster pace."""
    return replace(state, full_at_ns=pace.bucket.empty(now_ns), turn=state.turn + 1)


def reserve(state: Allowance, pace: Pace, now_ns: int) -> tuple[Allowance, Reservation]:
    """Take the next token, which may be valid only later."""
    earliest_ns = max(now_ns, state.held_until_ns)
    full_at_ns, at_ns = pace.bucket.take(state.full_at_ns, earliest_ns)
    return replace(state, full_at_ns=full_at_ns), Reservation(at_ns, state.turn)


def hold(state: Allowance, pace: Pace, now_ns: int, wait_s: float) -> Allowance:
    """Empty the bucket, cancel all reservations, and allow no request before the wait is over."""
    wait_ns = int(min(max(0.0, wait_s), LONGEST_HOLD_S) * SECOND_NS)
    return replace(
        state,
        full_at_ns=pace.bucket.empty(now_ns),
        held_until_ns=max(state.held_until_ns, now_ns + wait_ns),
        turn=state.turn + 1,
    )


def refusal(state: Allowance, share: Share, wall_s: float) -> RefusalReason | None:
    """Return why a request of this work may not be charged now, None if it may."""
    if state.allowed == UNKNOWN or (state.resets_at and wall_s >= state.resets_at):
        return "unknown"
    if share.cap is not None and state.spent[WORKS.index(share.work)] >= share.cap:
        return "capped"
    if share.machine is not None and sum(state.spent) >= share.machine:
        return "shared"
    if state.allowed == UNLIMITED:
        return None
    left = state.allowed - state.used
    if left <= 0:
        return "spent"
    return "kept" if left <= share.floor else None


def charge(state: Allowance, work: Work, requests: int = 1) -> Allowance:
    """Count requests as they are sent; a negative number takes back those that don't count."""
    spent = list(state.spent)
    spent[WORKS.index(work)] = max(0, spent[WORKS.index(work)] + requests)
    daily, polls, backfill = spent
    return replace(
        state,
        used=max(0, state.used + requests),
        spent=(daily, polls, backfill),
        sent=(sent := max(0, state.sent + requests)),
        answered=min(sent, state.answered),
    )


def answered(state: Allowance) -> Allowance:
    """Count a response, or a request that failed: it is counted by the service, or never will
    be."""
    return replace(state, answered=min(state.sent, state.answered + 1))


def reconcile(
    state: Allowance,
    account: ReportedLimits,
    *,
    charged_since: int = 0,
    wall_s: float | None = None,
) -> Allowance:
    """Adopt the service's account of the month.

    `charged_since` is what was charged here since the request for the account, without that
    request. A larger count than ours is adopted immediately: another machine uses the key. A
    smaller one is adopted only as far as two accounts in a row agree, since a request in progress
    is charged here and not yet counted there. A later reset begins a new period only
    if the old period is over at `wall_s`; None counts as over.
    """
    limit = UNLIMITED if account.allowed is None else account.allowed
    used, resets_at = account.used, int(account.resets_at.timestamp())
    if state.allowed == UNKNOWN or abs(resets_at - state.resets_at) > _SAME_MONTH_S:
        is_new = _is_next_period(state, resets_at, wall_s)
        fresh = (0, 0, 0) if is_new else state.spent
        return replace(
            state,
            allowed=limit,
            used=used + charged_since,
            resets_at=resets_at,
            excess=0,
            spent=fresh,
        )
    over = state.used - (used + charged_since)
    settled = max(0, min(over, state.excess))
    return replace(
        state,
        allowed=limit,
        resets_at=resets_at,
        used=state.used - (over if over < 0 else settled),
        excess=max(0, over - settled),
    )


def _is_next_period(state: Allowance, resets_at: int, wall_s: float | None) -> bool:
    is_later = state.resets_at > 0 and resets_at - state.resets_at > _SAME_MONTH_S
    return is_later and (wall_s is None or wall_s >= state.resets_at - _SAME_MONTH_S)


def adopt_headers(
    state: Allowance, heard: QuotaHeaders, sent: ChargedRequest | None, wall_s: float
) -> Allowance:
    """Adopt what the headers of a response say of the month.

    `sent` is the answered request; None is a request that the service does not count: only the
    reset is learnt from its response. Counts of another month, or of a rate, are ignored.

    The reported use includes the answered request, and all that were answered before it was sent.
    It may include requests that were in progress when it was sent, and later ones. Our count stays
    as it is between two bounds, and is else set to the nearer one:

    - at least the reported use and all requests sent after this one, so that no more is left than
      the service reported, less our newer requests;
    - at most that and all requests that were in progress when this one was sent.
    """
    resets_at = _month_ends(state, heard, wall_s)
    if state.allowed == UNKNOWN or not (resets_at or _may_be_of_month(state, heard, sent, wall_s)):
        return state
    if resets_at is not None and _is_next_period(state, resets_at, wall_s):
        state = replace(
            state, resets_at=resets_at, used=0, excess=0, spent=(0, 0, 0), answered=state.sent
        )
    elif resets_at is not None and abs(resets_at - state.resets_at) > _UNEVEN_S:
        state = replace(state, resets_at=resets_at)
    if sent is None or heard.remaining is None or sent.number > state.sent:
        return state
    allowed = state.allowed if heard.allowed is None else heard.allowed
    if allowed < heard.remaining:
        return state
    used = allowed - heard.remaining
    least = used + state.sent - sent.number
    most = used + max(0, state.sent - 1 - sent.answered)
    moved = min(max(state.used, least), max(least, most))
    return replace(state, allowed=allowed, used=moved, excess=0)


def is_of_month_before(state: Allowance, sent: ChargedRequest | None, wall_s: float) -> bool:
    """Whether a request was charged to an earlier month: its late response is about that month."""
    if sent is None or sent.resets_at == 0:
        return False
    return _is_next_period(replace(state, resets_at=sent.resets_at), state.resets_at, wall_s)


def _may_be_of_month(
    state: Allowance, heard: QuotaHeaders, sent: ChargedRequest | None, wall_s: float
) -> bool:
    """Whether counts without a believable reset are of the present month."""
    if heard.is_reset_doubted or heard.resets_in_s is not None or heard.allowed != state.allowed:
        return False
    if heard.reset_at is not None:
        # A response without a Date.
        return abs(heard.reset_at.timestamp() - state.resets_at) <= _SAME_MONTH_S
    return not is_of_month_before(state, sent, wall_s)


def _month_ends(state: Allowance, heard: QuotaHeaders, wall_s: float) -> int | None:
    """Return when the month ends by the headers; None if they don't say, or are about a rate."""
    if heard.resets_in_s is None:
        return None
    resets_at = int(wall_s + heard.resets_in_s)
    is_known = state.resets_at > 0 and abs(resets_at - state.resets_at) <= _UNEVEN_S
    return resets_at if is_known or heard.resets_in_s > _WINDOW_S else None


def exhausted(state: Allowance, resets_at: int | None = None) -> Allowance:
    """Return the state after the service reported that the month is used up.

    `resets_at` is when the service said that it ends, None if it did not.
    """
    if state.allowed < 0:
        return state
    return replace(
        state,
        used=max(state.used, state.allowed),
        resets_at=state.resets_at if resets_at is None else resets_at,
    )


def export_wait_s(state: Allowance, now_ns: int) -> float:
    """Return how long the next export has to wait, in seconds."""
    return max(0, state.export_at_ns - now_ns) / SECOND_NS


def hold_exports(state: Allowance, now_ns: int, wait_s: float) -> Allowance:
    """Allow no export before the wait is over; other requests are not held back."""
    wait_ns = int(min(max(0.0, wait_s), LONGEST_HOLD_S) * SECOND_NS)
    return replace(state, export_at_ns=max(state.export_at_ns, now_ns + wait_ns))
