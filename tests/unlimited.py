"""A limiter without limits, for servers of a test."""

from resources.limits.ledger import QuotaHeaders, ReportedLimits
from resources.limits.limiter import Limiter, Permit


class Unlimited(Limiter):
    """Allows every request, and counts none."""

    def __init__(self) -> None:
        return

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> Permit:
        return Permit(0, 0, alone=False)

    def on_answer(
        self, permit: Permit, heard: QuotaHeaders | None, *, counted: bool = True
    ) -> None:
        return

    def on_usage(self, account: ReportedLimits) -> None:
        return

    def on_stated_pace(self, rate_per_s: float | None, burst: int | None) -> None:
        return

    def on_rate_limited(self, retry_after_s: float | None, *, for_export: bool = False) -> None:
        return

    def on_quota_exhausted(
        self, resets_in_s: float | None = None, permit: Permit | None = None
    ) -> None:
        return

    def resets_in_s(self) -> float | None:
        return None

    def left(self, *, reserve: bool = False) -> int | None:
        return None
