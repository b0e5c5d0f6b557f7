"""A process that acquires from a shared limiter in a loop; as a child, it prints each instant.

python -m tests.resources.limits.shared_sender LEDGER RATE BURST COUNT
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from resources.errors import Defer
from resources.limits.allowance import Pace
from resources.limits.ledger import Ledger, monotonic_ns
from resources.limits.limiter import SharedLimiter


def main() -> None:
    path, rate_per_s, burst, count = sys.argv[1:]
    ledger = Ledger(Path(path), Pace(float(rate_per_s), int(burst)))
    limiter = SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
    for _ in range(int(count)):
        try:
            limiter.acquire()
        except Defer:
            return
        sys.stdout.write(f"{monotonic_ns()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
