"""An exact token bucket: rate per second and burst, on monotonic time (interface 8.1)."""

from fractions import Fraction

_NS_PER_S = 1_000_000_000


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate_per_s` each second, counted in whole numbers.

    The level is kept in units so small that neither a token nor a nanosecond's gain is ever
    rounded, so no long run of requests drifts from rate and burst.
    """

    __slots__ = ("_capacity", "_gain", "_level", "_price", "_seen_ns")

    def __init__(self, *, rate_per_s: float, burst: int, now_ns: int) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(f"a bucket needs rate > 0 and burst >= 1, got {rate_per_s}, {burst}")
        rate = Fraction(str(rate_per_s))
        self._gain = rate.numerator
        self._price = rate.denominator * _NS_PER_S
        self._capacity = burst * self._price
        self._level = self._capacity
        self._seen_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Take one token if there is one."""
        passed_ns = max(0, now_ns - self._seen_ns)
        self._seen_ns += passed_ns
        self._level = min(self._capacity, self._level + passed_ns * self._gain)
        if self._level < self._price:
            return False
        self._level -= self._price
        return True
