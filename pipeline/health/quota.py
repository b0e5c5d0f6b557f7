"""The month's quota as this machine knows it: from the ledger, else as the service last reported.

No request is sent. Times are by the machine's clock.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from pipeline.session import ledger_of
from pipeline.settings import Settings, SettingsError
from resources.errors import CatalogError
from resources.limits.ledger import UNKNOWN, UNLIMITED, Allowance, next_reset
from resources.request_log import last_usage
from warehouse.home import Home

PACE_OVER: Final = timedelta(days=7)
_RATE_LIMITED: Final = 429
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class QuotaHealth:
    """`quota` is the user's own limit if that is lower; `projected` is the use at the reset."""

    at: datetime
    counted_by: Literal["ledger", "service"]
    plan: str | None
    quota: int | None
    used: int | None
    remaining: int | None
    is_unlimited: bool
    reset_at: datetime
    pace_per_day: float
    projected: int | None

    @property
    def runs_out(self) -> bool:
        """Whether the quota is used up, or will be before the reset."""
        if self.quota is None or self.projected is None:
            return False
        return self.remaining == 0 or self.projected > self.quota


def read_quota(
    settings: Settings,
    home: Home,
    source: str,
    plan: str | None,
    now: datetime,
    ahead: timedelta,
) -> QuotaHealth | None:
    """Return the month's quota, None if nothing is known. `source` is the home's.

    The service's clock is `ahead` of the machine's.
    """
    used: int | None
    ledger, usage = _read_ledger(settings, source, now + ahead), last_usage(home.state)
    if ledger is not None:
        at, allowed, used, remaining = now, ledger.allowed, ledger.used, None
        mine, reset_at = ledger.own, datetime.fromtimestamp(ledger.resets_at, UTC)
    elif usage is not None:
        at, allowed, used, remaining = usage.at, usage.allowed, usage.used, usage.remaining
        if used is None and usage.quota is not None and remaining is not None:
            used = usage.quota - remaining
        plan, mine, reset_at = usage.plan, used or 0, usage.reset_at or next_reset(usage.at)
    else:
        return None
    quota, own = (None if allowed in (UNKNOWN, UNLIMITED) else allowed), settings.monthly_quota
    if own is not None and used is not None and (quota is None or own - mine < quota - used):
        quota, used = own, mine
    sent, pace = read_sent_requests(home.state, now)
    projected = None
    reset_at -= ahead
    if used is not None and (left := reset_at - now) > timedelta(0):
        projected = used + sum(each > at for each in sent) + ceil(pace * (left / _DAY))
    return QuotaHealth(
        at=at,
        counted_by="service" if ledger is None else "ledger",
        plan=plan,
        quota=quota,
        used=used,
        remaining=remaining if quota is None or used is None else max(0, quota - used),
        is_unlimited=allowed == UNLIMITED and quota is None,
        reset_at=reset_at,
        pace_per_day=pace,
        projected=projected,
    )


def _read_ledger(settings: Settings, source: str, now: datetime) -> Allowance | None:
    """Return the ledger's state of this month; `now` is by the service's clock."""
    with suppress(SettingsError, CatalogError):
        ledger = ledger_of(settings) if settings.source == source else None
        state = None if ledger is None else ledger.peek()
        if state is not None and not state.is_unknown(now.timestamp()):
            return state
    return None


class _Line(msgspec.Struct, frozen=True):
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    status: int | None = None


def read_sent_requests(state: Path, now: datetime) -> tuple[list[datetime], float]:
    """Return the times of the last seven days' attempts, and their average number a day.

    The service does not count a response 429. Lines that can't be read are skipped.
    """
    since, sent = now - PACE_OVER, list[datetime]()
    files = sorted(path for path in (state / "requests").glob("*.jsonl") if path.is_file())
    lately = [file for file in files if file.stem >= since.date().isoformat()]
    for text in (text for file in lately for text in file.read_bytes().splitlines()):
        with suppress(ValueError, RecursionError):
            line = msgspec.json.decode(text, type=_Line)
            if since < line.at <= now and line.status != _RATE_LIMITED:
                sent.append(line.at)
    over = now - (since if len(lately) < len(files) else min(sent, default=since))
    return sent, len(sent) / (max(_DAY, over) / _DAY)
