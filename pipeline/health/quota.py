"""The month's quota as this machine knows it: from the ledger, else as the service last reported.

The requests of a home are counted in its own log (resources/request_log.py). No request is sent,
and nothing is written.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from catalog.contract.plans import PLANS, Plan
from pipeline.session import ledger_of, reserve_of
from pipeline.settings import Settings, SettingsError
from resources.errors import LedgerUnusable
from resources.limits.ledger import UNLIMITED, Allowance, next_reset
from resources.request_log import ReportedUsage, last_usage
from warehouse.home import Home

PACE_OVER: Final = timedelta(days=7)
_RATE_LIMITED: Final = 429
_DAY: Final = timedelta(days=1)


class _Line(msgspec.Struct, frozen=True):
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    status: int | None = None


@dataclass(frozen=True, slots=True)
class SentRequests:
    """The times of the last days' attempts that the service counts, and the period's length."""

    at: tuple[datetime, ...]
    over: timedelta

    @property
    def a_day(self) -> float:
        return len(self.at) / (self.over / _DAY)

    def since(self, instant: datetime) -> int:
        return sum(at > instant for at in self.at)


def read_sent_requests(state: Path, now: datetime) -> SentRequests:
    """Return the attempts of the last seven days, or since the first attempt, at least a day.

    The service does not count an answer 429. Unreadable lines are skipped.
    """
    since = now - PACE_OVER
    files = sorted(path for path in (state / "requests").glob("*.jsonl") if path.is_file())
    lately = [file for file in files if file.stem >= since.date().isoformat()]
    at = tuple(line.at for file in lately for line in _lines(file) if since < line.at <= now)
    over = PACE_OVER if len(lately) < len(files) else now - min(at, default=since)
    return SentRequests(at, max(_DAY, over))


def _lines(file: Path) -> list[_Line]:
    found: list[_Line] = []
    decoder = msgspec.json.Decoder(_Line)
    with file.open("rb") as lines:
        for line in lines:
            try:
                request = decoder.decode(line)
            except (ValueError, RecursionError):
                continue
            if request.status != _RATE_LIMITED:
                found.append(request)
    return found


@dataclass(frozen=True, slots=True)
class QuotaHealth:
    """The quota used in the month, and the use projected to its reset by this home's pace.

    `quota` is the user's own limit if that is lower (ALMANAC_MONTHLY_QUOTA). Only the ledger has
    `own`, what this machine sent. `projected` is None if the report is of a month that is over.
    """

    at: datetime
    counted_by: Literal["ledger", "service"]
    plan: str | None
    quota: int | None
    used: int | None
    remaining: int | None
    is_unlimited: bool
    reset_at: datetime | None
    reserve: int | None
    own: int | None = None
    held_until: datetime | None = None
    pace_per_day: float = 0.0
    projected: int | None = None

    @property
    def runs_out(self) -> bool:
        """Whether the quota is used up, or will be before the reset."""
        if self.quota is None or self.projected is None:
            return False
        return self.remaining == 0 or self.projected > self.quota


def read_quota(
    settings: Settings,
    home: Home,
    source: str | None,
    plan_name: str | None,
    now: datetime,
    ahead: timedelta,
) -> QuotaHealth | None:
    """Return the quota of the month, None if nothing is known. `source` is the home's.

    `now` is by the machine's clock, as the log; the reset is by the service's, which is `ahead`.
    """
    sent = read_sent_requests(home.state, now)
    plan = PLANS.get(plan_name or "")
    counted = _ledger(settings, source, now + ahead)
    if counted is not None:
        return _by_ledger(settings, plan, *counted, sent, now, ahead)
    usage = last_usage(home.state)
    return None if usage is None else _as_reported(settings, plan, usage, sent, now)


def _ledger(
    settings: Settings, source: str | None, now: datetime
) -> tuple[Allowance, timedelta] | None:
    """Return the ledger's allowance of this month, and for how long requests are held back."""
    try:
        if settings.source != source:
            return None
        ledger = ledger_of(settings)
        if ledger is None:
            return None
        state = ledger.peek()
    except (SettingsError, LedgerUnusable):
        return None
    if state.is_unknown(now.timestamp()):
        return None
    held = timedelta(microseconds=(state.held_until_ns - ledger.now_ns()) / 1_000)
    return state, held


def _by_ledger(
    settings: Settings,
    plan: Plan | None,
    state: Allowance,
    held: timedelta,
    sent: SentRequests,
    now: datetime,
    ahead: timedelta,
) -> QuotaHealth:
    quota = None if state.allowed == UNLIMITED else state.allowed
    used, own = state.used, settings.monthly_quota
    if own is not None and (quota is None or own - state.own < quota - used):
        quota, used = own, state.own
    resets_at = datetime.fromtimestamp(state.resets_at, UTC)
    return QuotaHealth(
        at=now,
        counted_by="ledger",
        plan=None if plan is None else plan.name,
        quota=quota,
        used=used,
        remaining=state.left(own),
        is_unlimited=quota is None,
        reset_at=resets_at,
        reserve=None if plan is None else reserve_of(settings, plan, state.allowed),
        own=state.own,
        held_until=now + held if held > timedelta() else None,
        pace_per_day=sent.a_day,
        projected=_projected(used, sent, resets_at - now - ahead),
    )


def _as_reported(
    settings: Settings, plan: Plan | None, usage: ReportedUsage, sent: SentRequests, now: datetime
) -> QuotaHealth:
    """Return the last usage that the service reported, projected by the requests of this home."""
    used, quota = usage.used, usage.quota
    if used is None and quota is not None and usage.remaining is not None:
        used = quota - usage.remaining
    own = settings.monthly_quota
    remaining = usage.remaining
    if own is not None and used is not None and (quota is None or own < quota):
        quota, remaining = own, max(0, own - used)
    resets_at = usage.reset_at or next_reset(usage.at)
    projected = None
    if used is not None and now < resets_at:
        projected = _projected(used + sent.since(usage.at), sent, resets_at - now)
    return QuotaHealth(
        at=usage.at,
        counted_by="service",
        plan=usage.plan,
        quota=quota,
        used=used,
        remaining=remaining,
        is_unlimited=usage.is_unlimited and own is None,
        reset_at=resets_at if usage.reset_at is not None or projected is not None else None,
        reserve=None if plan is None else reserve_of(settings, plan, usage.allowed),
        pace_per_day=sent.a_day,
        projected=projected,
    )


def _projected(used: int, sent: SentRequests, left: timedelta) -> int:
    return used + ceil(sent.a_day * (left / _DAY))
