"""A limiter without limits, for servers of a test."""

from resources.limits.limiter import Limiter


class Unlimited(Limiter):
    """Allows every request."""

    def acquire(self, *, for_usage: bool = False, for_export: bool = False) -> None:
        return None

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        return None
