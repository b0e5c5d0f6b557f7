"""Processes with several threads each that call a service through one ledger until all is answered.

    python -m tests.resources.limits.storming '{"base_url": …, "key": …, "ledger": …, "calls": …}'

A fork for each process. Prints a `Report` of each as JSON, when all have ended.
"""

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread

import msgspec

from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.retries import RetryPolicy
from resources.limits.allowance import Pace
from resources.limits.ledger import Ledger
from resources.limits.shared_limiter import SharedLimiter


class Order(msgspec.Struct):
    """`calls` is for each thread."""

    base_url: str
    key: str
    ledger: str
    rate_per_s: float
    burst: int
    processes: int = 4
    threads: int = 2
    calls: int = 40


class Report(msgspec.Struct):
    """What one process saw: calls that were answered, errors, and the wall time of its end."""

    answered: int = 0
    errors: list[str] = []
    ended_at: float = 0.0


def call(order: Order) -> Report:
    report, lock = Report(), Lock()
    ledger = Ledger(Path(order.ledger), Pace(order.rate_per_s, order.burst))
    limiter = SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
    client = CatalogClient(
        order.base_url, order.key, limiter=limiter, policy=RetryPolicy(attempts=50)
    )

    def one_thread() -> None:
        for _ in range(order.calls):
            try:
                client.event("nothing")
            except CatalogError as error:
                with lock:
                    report.errors.append(repr(error))
            else:
                with lock:
                    report.answered += 1

    threads = [Thread(target=one_thread) for _ in range(order.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.ended_at = time.time()
    return report


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    pipes: list[int] = []
    for _ in range(order.processes):
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.write(writes, msgspec.json.encode(call(order)))
            os._exit(0)
        os.close(writes)
        pipes.append(reads)
    reports: list[Report] = []
    for reads in pipes:
        with os.fdopen(reads, "rb") as pipe:
            reports.append(msgspec.json.decode(pipe.read(), type=Report))
    sys.stdout.write(msgspec.json.encode(reports).decode())


if __name__ == "__main__":
    main()
