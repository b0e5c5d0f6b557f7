"""Processes with several threads each that call a service through one ledger until all is answered.

    python -m tests.resources.limits.storming '{"base_url": …, "key": …, "ledger": …, "calls": …}'

A fork for each process. Prints a `Report` of each as JSON, when all have ended.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread, local

import msgspec

from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.limits.allowance import ChargedRequest, Pace, Reservation
from resources.limits.ledger import Entry, Ledger
from resources.limits.limiter import SharedLimiter
from resources.waits import RetryPolicy


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


class Refused(msgspec.Struct):
    """A request that was answered 429, on the ledger's clock: when it was allowed, and instants
    just before and just after every process could read of the 429 in the ledger."""

    allowed_ns: int
    before_ns: int
    after_ns: int


class Report(msgspec.Struct):
    """What one process saw: calls that were answered, and errors.

    On the ledger's clock, in ns: when the limiter allowed each request, and the token that it used.
    A thread that wakes late uses its token late.
    """

    answered: int = 0
    errors: list[str] = []
    allowed_ns: list[int] = []
    tokens_ns: list[int] = []
    refused: list[Refused] = []


class NotingLimiter(SharedLimiter):
    """Notes in a report when it allows requests, and when it is told of a 429."""

    def __init__(self, ledger: Ledger, report: Report) -> None:
        super().__init__(ledger, clock=lambda: datetime.now(UTC))
        self._report = report
        self._own = local()

    def _reserve(self, entry: Entry) -> Reservation:
        reserved = super()._reserve(entry)
        self._own.token_ns = reserved.at_ns
        return reserved

    def _charge(self, entry: Entry, *, for_export: bool) -> ChargedRequest:
        self._own.allowed_ns = entry.now_ns
        self._report.allowed_ns.append(entry.now_ns)
        self._report.tokens_ns.append(self._own.token_ns)
        return super()._charge(entry, for_export=for_export)

    def on_rate_limited(self, retry_after_s: float | None) -> None:
        before_ns = self.ledger.now_ns()
        super().on_rate_limited(retry_after_s)
        refused = Refused(self._own.allowed_ns, before_ns, self.ledger.now_ns())
        self._report.refused.append(refused)


def call(order: Order) -> Report:
    report, lock = Report(), Lock()
    ledger = Ledger(Path(order.ledger), Pace(order.rate_per_s, order.burst))
    limiter = NotingLimiter(ledger, report)
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
