"""Which limiter a service is asked through: the machine's, or that of the embedded sandbox."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil

from catalog.contract.plans import Plan
from catalog.sandbox.service import Sandbox
from pipeline.settings import Settings
from resources.allowance import Account, Pace, Share, Work, next_reset
from resources.ledger import Ledger, ledger_name
from resources.limiter import JITTER_S, Limiter, TokenBucketLimiter, usable_burst
from resources.shared_limiter import SharedLimiter


def limiter_for(
    settings: Settings,
    plan: Plan,
    clock: Callable[[], datetime],
    sandbox: Sandbox | None = None,
    work: Work = "daily",
) -> Limiter:
    """Return the limiter of a kind of work for a key on a plan.

    A service is shared with every process of the machine. The embedded sandbox has a key of its
    own that nobody else knows.
    """
    ledger = ledger_of(settings, plan)
    if ledger is not None:
        return SharedLimiter(ledger, share_of(settings, plan, work), clock=clock)
    rate_per_s = settings.rate_per_s or plan.rate_per_s
    burst = settings.burst or plan.burst
    if sandbox is None or sandbox.clock.running:
        return TokenBucketLimiter(rate_per_s=rate_per_s, burst=burst)
    # A clock that stands gives no new tokens: waiting there is moving it on.
    return TokenBucketLimiter(
        rate_per_s=rate_per_s,
        burst=burst,
        monotonic=lambda: sandbox.clock.now().timestamp(),
        sleep=lambda seconds: _advance(sandbox, seconds),
    )


def ledger_of(settings: Settings, plan: Plan) -> Ledger | None:
    """Return where the machine counts what a key sends; None for the embedded sandbox."""
    found = settings.service_address()
    if found is None:
        return None
    return Ledger(settings.state / "limits" / ledger_name(*found), pace_of(settings, plan))


def pace_of(settings: Settings, plan: Plan) -> Pace:
    """Return how fast this machine asks: its share of the plan's rate, and what a burst may be."""
    rate_per_s = settings.rate_per_s or plan.rate_per_s
    return Pace(rate_per_s, usable_burst(rate_per_s, settings.burst or plan.burst, JITTER_S))


def share_of(settings: Settings, plan: Plan, work: Work) -> Share:
    """Return what a kind of work may use of the month: the daily look alone has the reserve."""
    caps = {
        "daily": settings.daily_quota,
        "polls": settings.polls_quota,
        "backfill": settings.backfill_quota,
    }
    machine, floor = settings.monthly_quota, 0
    if work != "daily":
        floor = reserve_of(settings, plan)
        machine = None if machine is None else machine - floor
    return Share(work, floor, caps[work], machine)


def reserve_of(settings: Settings, plan: Plan) -> int:
    """Return the requests a month that are kept for the daily look; 0 where nothing limits."""
    quota = settings.monthly_quota or plan.monthly_quota
    return 0 if quota is None else ceil(quota * settings.reserve)


def own_account(settings: Settings, plan: Plan, now: datetime, ahead: timedelta) -> Account:
    """Return the month as this machine counts it, for a service that gives no account.

    The month is the service's, which is `ahead` of us; its end is told by our clock, as `now`.
    """
    ledger = ledger_of(settings, plan)
    state = None if ledger is None else ledger.peek()
    is_of_now = state is not None and state.resets_at > now.timestamp()
    used = state.used if state is not None and is_of_now else 0
    return Account(
        settings.monthly_quota or plan.monthly_quota, used, next_reset(now + ahead) - ahead
    )


def _advance(sandbox: Sandbox, seconds: float) -> None:
    sandbox.advance(timedelta(seconds=seconds))
