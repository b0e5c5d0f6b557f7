"""Why a request is not sent: the one place that decides, and the reasons as values.

The limiter asks `check_quota` and `find_wait` before each attempt; the caller asks
`read_deferral` after a response. A reason waits in the process, or defers the work (`Defer`).
`almanac status` and the log of a run show its sentence. docs/operate.md has `REASONS` as a table:
`python -m resources.limits.decision` prints it. Times are aware UTC, by the service's clock.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from resources.errors import CatalogError, Defer, Reason
from resources.limits.ledger import SECOND_NS, Allowance, Pace, next_reset

REASONS: Final[dict[str, tuple[str, str]]] = {
    "rate": ("The key's rate allows no earlier request.", "waits for the next token"),
    "held": ("The service asked for a wait of up to two minutes.", "waits as long"),
    "interval": ("Another export was sent less than `ALMANAC_EXPORT_INTERVAL_S` ago.", "waits"),
    "asked_to_wait": ("The service asked for a longer wait.", "deferred as long, at most a day"),
    "quota": ("The month's quota is used up.", "deferred to its reset"),
    "share": ("This machine has sent `ALMANAC_MONTHLY_QUOTA` requests.", "deferred to the reset"),
    "reserve": ("The rest of the quota is for daily pulls.", "deferred to the reset"),
    "failing": ("An export failed on each attempt.", "deferred for three hours"),
}
"""The meaning of each code, and what happens to the request."""
LONGEST_WAIT_S: Final = 120.0
"""If the service requests a longer wait, the work is deferred."""
LONGEST_HOLD_S: Final = 86_400.0
"""The longest wait for an unreadable limit; then the request is sent anyway."""
FAILED_EXPORT_AGAIN_AFTER: Final = timedelta(hours=3)
"""The wait after a failed export. Then the whole daily pull is repeated, which costs requests
again."""
_MONTH: Final = re.compile(r"quota|limit exceeded", re.I)
"""A code or message that means that the quota of the month is used up, unless it is `_SHORTER`."""
_SHORTER: Final = re.compile(r"rate|burst|day|daily|per[ _-]?(second|minute|hour)", re.I)
_LONGEST_MONTH_S: Final = 31 * 86_400.0


def check_quota(state: Allowance, machine_quota: int | None, reserved: int) -> Reason | None:
    """Return why the quota of a known month allows this work no request; None if it does."""
    left = state.left(machine_quota)
    if left is None or left > reserved:
        return None
    until = datetime.fromtimestamp(state.resets_at, UTC)
    if left:
        why = f"the rest of the monthly quota is reserved for daily pulls ({left:,} left)"
        return Reason("reserve", why, until)
    if 0 <= state.allowed <= state.used:
        why = f"the monthly quota is used up: {state.used:,} of {state.allowed:,} requests"
        return Reason("quota", why, until)
    why = f"this machine's share of the quota is used up: {state.own:,} of "
    return Reason("share", f"{why}{machine_quota:,} requests (ALMANAC_MONTHLY_QUOTA)", until)


def find_wait(
    state: Allowance, pace: Pace, now_ns: int, now: datetime, longest_export_s: float | None
) -> Reason | None:
    """Return why the next token can't be taken now; None if it can.

    `now_ns` is by the ledger's clock. An export waits up to `longest_export_s`; None for others.
    """
    token_s = max(0.0, 1 - state.tokens_at(now_ns, pace)) * pace.interval_ns / SECOND_NS
    held_s = max(0, state.held_until_ns - now_ns) / SECOND_NS
    export_s = 0.0
    if longest_export_s is not None:
        export_s = max(0, state.export_at_ns - now_ns) / SECOND_NS
    wait_s = max(token_s, held_s, export_s)
    if wait_s <= 0:
        return None
    until = now + timedelta(seconds=wait_s)
    if held_s > LONGEST_WAIT_S or export_s > (longest_export_s or 0.0):
        why = "the service requested a wait that has not ended yet"
        return Reason("asked_to_wait", why, until)
    if export_s >= wait_s:
        why = "the interval between two exports (ALMANAC_EXPORT_INTERVAL_S)"
        return Reason("interval", why, until)
    if held_s >= wait_s:
        return Reason("held", "the service asked for it", until)
    return Reason("rate", "the rate limit of the key allows no earlier request", until)


def read_deferral(
    status: int,
    said: str,
    text: str,
    *,
    wait_s: float | None,
    month_left_s: float | None,
    now: datetime,
) -> Reason | None:
    """Return why a refused call is deferred; None if it is repeated soon.

    `said` is the code and message of the answer `text`. The month resets after Retry-After
    (`wait_s`), else after `month_left_s`, else on the first of the next month, 00:00 UTC.
    """
    if status == 429 and _MONTH.search(said) and not _SHORTER.search(said):
        left_s, until = wait_s or month_left_s, next_reset(now)
        if left_s:
            until = now + timedelta(seconds=min(left_s, _LONGEST_MONTH_S))
        why = f"{text}: the monthly quota is used up"
        return Reason("quota", why, until, is_stated=bool(left_s))
    if wait_s is None or wait_s <= LONGEST_WAIT_S:
        return None
    until = now + timedelta(seconds=min(wait_s, LONGEST_HOLD_S))
    return Reason("asked_to_wait", f"{text}, and requested a wait", until)


def defer_failed_export(error: CatalogError, now: datetime) -> Defer:
    """Return the deferral of an export that failed on every attempt."""
    until = now + FAILED_EXPORT_AGAIN_AFTER
    deferral = Defer(Reason("failing", error.happened, until), attempts=error.attempts)
    deferral.left = error.left
    return deferral


def make_reason_table() -> str:
    """Return the table of docs/operate.md."""
    rows = [f"| `{code}` | {why} | {then} |" for code, (why, then) in REASONS.items()]
    return "\n".join(["| reason | meaning | the request |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.stdout.write(f"{make_reason_table()}\n")
