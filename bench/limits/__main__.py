"""`python -m bench.limits`: four processes that share one key, at Standard, Pro and Elite.

Each process sends all requests that the limiter allows to the real server, on `--threads` threads.
A delay of up to half a second is added behind the limiter, as by a network. Printed for each plan:
the requests sent, their share of usable burst + rate x time, the 429 responses, and the processor
time of the clients and of the machine.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from catalog.contract.plans import PLANS, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.limits.ledger import Ledger, Pace, ReportedLimits
from resources.limits.limiter import Limiter, usable_burst
from resources.waits import RetryPolicy

PLAN_NAMES = ("standard", "pro", "elite")
PROCESSES = 4
DELAY_MAX_S = 0.5
STARTS_IN_S = 8.0
BAR = 0.9


class DelayedNetwork(httpx.BaseTransport):
    """A network that delays each request by a random time, and notes when it was sent."""

    def __init__(self, seed: int) -> None:
        self._inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=None))
        self._random = Random(seed)
        self._lock = Lock()
        self.statuses: Counter[int] = Counter()
        self.sent_at: list[float] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.sent_at.append(time.monotonic())
            wait_s = self._random.uniform(0, DELAY_MAX_S)
        time.sleep(wait_s)
        response = self._inner.handle_request(request)
        with self._lock:
            self.statuses[response.status_code] += 1
        return response


def send(order: dict[str, Any]) -> None:
    """Send all requests that the limiter allows until the time is over; print the figures."""
    plan, network = PLANS[order["plan"]], DelayedNetwork(order["seed"])
    pace = Pace(plan.rate_per_s, usable_burst(plan.rate_per_s, plan.burst))
    limiter = Limiter(
        Ledger(Path(order["ledger"])), lambda state: pace, clock=lambda: datetime.now(UTC)
    )
    client = CatalogClient(
        order["base_url"],
        order["key"],
        limiter=limiter,
        transport=network,
        policy=RetryPolicy(attempts=1),
    )
    begins, until = order["begins"], order["begins"] + order["seconds"]
    time.sleep(max(0.0, begins - time.monotonic()))
    used_before = time.process_time()

    def send_on() -> None:
        while time.monotonic() < until:
            try:
                client.event("nothing")
            except CatalogError:
                continue

    threads = [Thread(target=send_on) for _ in range(order["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = {
        "sent": sum(at <= until for at in network.sent_at),
        "statuses": dict(network.statuses),
        "processor_s": time.process_time() - used_before,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(
    plan: Plan, sandbox: Sandbox, folder: Path, seconds: int, threads: int
) -> dict[str, Any]:
    """Return the figures of the processes of one plan."""
    ledger = folder / f"{plan.name}.sqlite"
    order = {
        "plan": plan.name,
        "base_url": sandbox.base_url,
        "key": sandbox.new_key(plan.name),
        "ledger": str(ledger),
        "begins": time.monotonic() + STARTS_IN_S,
        "seconds": seconds,
        "threads": threads,
    }
    burst = usable_burst(plan.rate_per_s, plan.burst)
    pace = Pace(plan.rate_per_s, burst)
    limiter = Limiter(Ledger(ledger), lambda state: pace, clock=lambda: datetime.now(UTC))
    limiter.on_usage(ReportedLimits(None, 0, datetime.now(UTC) + timedelta(days=9)))
    with limiter.ledger.locked() as state:
        state.tokens = float(burst)
    program = (sys.executable, "-m", "bench.limits", "--order")
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [*program, json.dumps({**order, "seed": seed})],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed in range(PROCESSES)
        ]
        reports = [json.loads(child.communicate()[0]) for child in children]
    allowed = burst + plan.rate_per_s * seconds
    sent = sum(report["sent"] for report in reports)
    return {
        "plan": plan.name,
        "sent": sent,
        "allowed": allowed,
        "share": sent / allowed,
        "refused": sum(report["statuses"].get("429", 0) for report in reports),
        "processor_s": sum(report["processor_s"] for report in reports),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each plan (default 60)")
    parser.add_argument("--threads", type=int, default=8, help="of each process (default 8)")
    parser.add_argument("--plans", nargs="*", default=PLAN_NAMES, choices=PLAN_NAMES)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--order", type=json.loads, help="what a child sends")
    given = parser.parse_args()
    if given.order is not None:
        send(given.order)
        return
    with (
        TemporaryDirectory(prefix="almanac-limits-") as folder,
        Sandbox(seed=1, now=datetime(2026, 3, 1, tzinfo=UTC), export_interval_s=0) as sandbox,
    ):
        rows = [
            measure(PLANS[name], sandbox, Path(folder), given.seconds, given.threads)
            for name in given.plans
        ]
    console = Console(highlight=False)
    console.print(
        f"limits: {PROCESSES} processes a key, {given.seconds} s, delayed up to {DELAY_MAX_S} s"
    )
    table = Table(
        "plan", "sent", "usable burst + rate x time", "share", "429", "processor s", "load"
    )
    for row in rows:
        table.add_row(
            *(row["plan"], f"{row['sent']:,}", f"{row['allowed']:,.0f}", f"{row['share']:.1%}"),
            *(str(row["refused"]), f"{row['processor_s']:.1f}", f"{row['load']:.1f}"),
        )
    console.print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))
    if any(row["refused"] or row["share"] < BAR for row in rows):
        raise SystemExit("a request was refused, or less than 90 % of the rate was used")


if __name__ == "__main__":
    main()
