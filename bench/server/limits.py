"""Four processes that share one key, at Standard, Pro and Elite: the share of the rate they use.

Each process sends all requests that the limiter allows to the sandbox, on eight threads. A delay of
up to half a second is added behind the limiter, as by a network. The requests sent are compared
with usable burst + rate x time, and no response may be a 429.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Lock, Thread
from typing import Any, Final

import httpx
from rich.console import Console
from rich.table import Table

from bench.children import ChildFailed
from catalog.contract.plans import PLANS, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.retry import RetryPolicy
from resources.limits.ledger import Ledger, Pace, ReportedLimits
from resources.limits.limiter import Limiter, usable_burst

BAR: Final = 0.9
_PLANS: Final = ("standard", "pro", "elite")
_PROCESSES, _THREADS = 4, 8
_DELAY_MAX_S: Final = 0.5
_STARTS_IN_S: Final = 8.0


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
            wait_s = self._random.uniform(0, _DELAY_MAX_S)
        time.sleep(wait_s)
        response = self._inner.handle_request(request)
        with self._lock:
            self.statuses[response.status_code] += 1
        return response


def measure_limits(folder: Path, seconds: int, console: Console) -> list[dict[str, Any]]:
    """Print and return the figures of each plan.

    Raises:
        ChildFailed: a request was refused, or less than 90 % of the rate was used.
    """
    now = datetime(2026, 3, 1, tzinfo=UTC)
    with Sandbox(seed=1, now=now, export_interval_s=0) as sandbox:
        rows = [_measure_plan(PLANS[name], sandbox, folder, seconds) for name in _PLANS]
    title = f"{_PROCESSES} processes a key, {seconds} s, delayed up to {_DELAY_MAX_S} s"
    table = Table("plan", "sent", "burst + rate x time", "share", "429", title=title)
    for row in rows:
        sent, allowed = f"{row['sent']:,}", f"{row['allowed']:,.0f}"
        table.add_row(row["plan"], sent, allowed, f"{row['share']:.1%}", str(row["refused"]))
    console.print(table)
    if any(row["refused"] or row["share"] < BAR for row in rows):
        raise ChildFailed("a request was refused, or less than 90 % of the rate was used")
    return rows


def _measure_plan(plan: Plan, sandbox: Sandbox, folder: Path, seconds: int) -> dict[str, Any]:
    order: dict[str, Any] = {
        "plan": plan.name,
        "base_url": sandbox.base_url,
        "key": sandbox.new_key(plan.name),
        "ledger": str(folder / f"{plan.name}.sqlite"),
        "begins": time.monotonic() + _STARTS_IN_S,
        "seconds": seconds,
    }
    limiter, burst = _make_limiter(plan, order["ledger"])
    limiter.on_usage(ReportedLimits(None, 0, datetime.now(UTC) + timedelta(days=9)))
    with limiter.ledger.locked() as state:
        state.tokens = float(burst)
    program = (sys.executable, "-m", "bench.server.limits")
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [*program, json.dumps({**order, "seed": seed})],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed in range(_PROCESSES)
        ]
        reports = [json.loads(child.communicate()[0]) for child in children]
    allowed = burst + plan.rate_per_s * seconds
    sent = sum(report["sent"] for report in reports)
    refused = sum(report["statuses"].get("429", 0) for report in reports)
    shares = {"sent": sent, "allowed": allowed, "share": sent / allowed}
    return {"plan": plan.name, **shares, "refused": refused}


def _make_limiter(plan: Plan, ledger: str) -> tuple[Limiter, int]:
    burst = usable_burst(plan.rate_per_s, plan.burst)
    pace = Pace(plan.rate_per_s, burst)
    return Limiter(Ledger(Path(ledger)), lambda state: pace, clock=lambda: datetime.now(UTC)), burst


def send(order: dict[str, Any]) -> None:
    """Send all requests that the limiter allows until the time is over; print the figures."""
    network = DelayedNetwork(order["seed"])
    limiter, _ = _make_limiter(PLANS[order["plan"]], order["ledger"])
    client = CatalogClient(
        order["base_url"],
        order["key"],
        limiter=limiter,
        transport=network,
        policy=RetryPolicy(attempts=1),
    )
    until = order["begins"] + order["seconds"]
    time.sleep(max(0.0, order["begins"] - time.monotonic()))

    def send_on() -> None:
        while time.monotonic() < until:
            try:
                client.event("nothing")
            except CatalogError:
                continue

    threads = [Thread(target=send_on) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = sum(at <= until for at in network.sent_at)
    sys.stdout.write(json.dumps({"sent": sent, "statuses": dict(network.statuses)}) + "\n")


if __name__ == "__main__":
    send(json.loads(sys.argv[1]))
