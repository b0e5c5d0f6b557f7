"""A token bucket in whole numbers: nothing is rounded, so no long run of requests drifts.

The server limits a key with it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Holds up to `burst` tokens, and gains one token every `interval`.

    The caller keeps its only state, `full_at`: the time at which the bucket is full again (the
    theoretical arrival time of GCRA). `interval` and all times are whole numbers of one unit, and
    `interval` and `burst` are at least 1.
    """

    interval: int
    burst: int

    def take(self, full_at: int, now: int) -> tuple[int, int]:
        """Take the next token; return the new `full_at` and the time from which it is valid."""
        full_at = max(full_at, now)
        return full_at + self.interval, max(now, full_at - (self.burst - 1) * self.interval)
