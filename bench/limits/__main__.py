"""`python -m bench.limits`: four processes that share one limiter, at each plan.

Each request is delayed behind the limiter by up to half a second. The number of requests sent is
compared with the usable burst and the rate, and 429 answers are counted, with our server and with
nginx. Then eight processes run into a reserve of a fifth of the quota. All plans run side by
side, each with its own key.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.limits.nginx import NoNginx, nginx
from bench.report import parse_arguments
from catalog.contract.plans import PLANS, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.limiter import JITTER_S, SharedLimiter, usable_burst

PLAN_NAMES = ("free", "standard", "pro", "elite")
PROCESSES = 4
DELAY_MAX_S = 0.5
BAR = 0.99
QUOTA, RESERVE, MANY = 400, 80, 8


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a plan's processes; `allowed` is usable burst + rate x time."""

    server: str
    plan: str
    left: int
    allowed: float
    refused: int

    @property
    def share(self) -> float:
        return self.left / self.allowed


def main() -> None:
    size = parse_arguments(__doc__, seconds=120)
    console = Console(highlight=False)
    with TemporaryDirectory(prefix="almanac-limits-", dir=size.folder) as temporary:
        folder = Path(temporary)
        with Sandbox(seed=1, now=datetime(2026, 3, 1, tzinfo=UTC), export_interval_s=0) as sandbox:
            keys = {name: sandbox.new_key(name) for name in PLAN_NAMES}
            addresses = dict.fromkeys(PLAN_NAMES, sandbox.base_url)
            rows = _race("almanac", addresses, keys, folder, size.seconds)
            reserve = _reserve(sandbox, folder)
        limits = {name: (PLANS[name].rate_per_s, PLANS[name].burst) for name in PLAN_NAMES}
        try:
            with nginx(folder, limits) as addresses:
                rows += _race("nginx", addresses, keys, folder, size.seconds)
        except NoNginx as error:
            console.print(str(error))
    _show(console, rows, reserve, size.seconds)
    if size.json is not None:
        figures = [{**asdict(row), "share": row.share} for row in rows]
        size.json.write_text(json.dumps({"rows": figures, "reserve": reserve}, indent=1))


def _race(
    server: str, addresses: dict[str, str], keys: dict[str, str], folder: Path, seconds: int
) -> list[Row]:
    begins = time.monotonic() + 8.0
    with ExitStack() as stack:
        children: dict[str, list[subprocess.Popen[str]]] = {}
        for name in PLAN_NAMES:
            plan = PLANS[name]
            ledger = folder / f"{server}-{name}.ledger"
            _full(ledger, plan, allowed=None)
            threads = ceil((_usable(plan) + plan.rate_per_s) / PROCESSES)
            common: dict[str, Any] = {
                "base_url": addresses[name],
                "key": keys[name],
                "ledger": str(ledger),
            }
            children[name] = [
                stack.enter_context(_sender(plan, seed, begins, seconds, threads=threads, **common))
                for seed in range(PROCESSES)
            ]
        return [_row(server, PLANS[name], children[name], seconds) for name in PLAN_NAMES]


def _row(server: str, plan: Plan, children: list[subprocess.Popen[str]], seconds: int) -> Row:
    reports = [_report(child) for child in children]
    return Row(
        server=server,
        plan=plan.name,
        left=sum(report["left"] for report in reports),
        allowed=_usable(plan) + plan.rate_per_s * seconds,
        refused=sum(report["statuses"].get("429", 0) for report in reports),
    )


def _reserve(sandbox: Sandbox, folder: Path) -> dict[str, Any]:
    """Let eight processes run into the reserve; return what the server answered."""
    plan = PLANS["elite"]
    key = sandbox.new_key("enterprise", monthly_quota=QUOTA, rate_per_s=100, burst=200)
    ledger = folder / "reserve.ledger"
    _full(ledger, plan, allowed=QUOTA)
    begins = time.monotonic() + 8.0
    common: dict[str, Any] = {
        "base_url": sandbox.base_url,
        "key": key,
        "ledger": str(ledger),
        "floor": RESERVE,
    }
    with ExitStack() as stack:
        children = [
            stack.enter_context(_sender(plan, seed, begins, 60, threads=4, **common))
            for seed in range(MANY)
        ]
        reports = [_report(child) for child in children]
    answered = sum(sum(report["statuses"].values()) for report in reports)
    return {"quota": QUOTA, "kept": RESERVE, "answered": answered, "due": QUOTA - RESERVE}


def _full(path: Path, plan: Plan, *, allowed: int | None) -> None:
    """Make a ledger with a full bucket: a new one is empty, and fills in burst / rate."""
    ledger = Ledger(path, Pace(1e6, 1))
    limiter = SharedLimiter(ledger, clock=lambda: datetime.now(UTC))
    limiter.on_usage(ReportedLimits(allowed, 0, datetime.now(UTC) + timedelta(days=9)))
    ledger.close()


def _sender(
    plan: Plan, seed: int, begins: float, seconds: int, *, floor: int = 0, **more: Any
) -> subprocess.Popen[str]:
    words = {
        **more,
        "rate_per_s": plan.rate_per_s,
        "burst": _usable(plan),
        "held_up_s": DELAY_MAX_S,
        "begins": begins,
        "seconds": seconds,
        "floor": floor,
        "seed": seed,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "bench.limits.sender", json.dumps(words)],
        stdout=subprocess.PIPE,
        text=True,
    )


def _report(child: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = child.communicate()
    if child.returncode != 0:
        raise SystemExit(f"a sender ended with {child.returncode}; there is no figure")
    report: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return report


def _usable(plan: Plan) -> int:
    return usable_burst(plan.rate_per_s, plan.burst, JITTER_S)


def _show(console: Console, rows: list[Row], reserve: dict[str, Any], seconds: int) -> None:
    console.print(f"limits: {PROCESSES} processes, {seconds} s, held up to {DELAY_MAX_S} s")
    table = Table("server", "plan", "left", "usable burst + rate x time", "share", "429")
    for row in rows:
        share = f"{row.share:.1%}"
        table.add_row(
            row.server, row.plan, f"{row.left:,}", f"{row.allowed:,.0f}", share, str(row.refused)
        )
    console.print(table)
    least = min(row.share for row in rows)
    console.print(f"at least {BAR:.0%} of what may be sent: {least:.1%}")
    console.print(f"no 429: {sum(row.refused for row in rows)}")
    console.print(
        f"{MANY} processes with {reserve['kept']} of {reserve['quota']} kept: "
        f"{reserve['answered']} answered, due {reserve['due']}"
    )


if __name__ == "__main__":
    main()
