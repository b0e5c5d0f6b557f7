"""`python -m bench.limits.sweep`: a backfill of the whole catalog, with a latency of 300 ms.

The requests are compared with the number of full pages, and the time with the shortest that the
plan's usable burst and rate allow. A range is then paged one page after the other. The key has
the rate and burst of each plan, and sees the whole catalog.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from bench.report import parse_arguments
from catalog.contract.plans import ENTERPRISE, PLANS, Plan
from catalog.sandbox.sandbox import Sandbox
from resources.backfill.backfill import Backfill
from resources.backfill.state import BackfillStates
from resources.http.client import CatalogClient
from resources.limits.allowance import Pace, ReportedLimits
from resources.limits.ledger import Ledger
from resources.limits.limiter import JITTER_S, SharedLimiter, usable_burst
from resources.request_log import RequestLog
from resources.session import CatalogSession
from warehouse.clock import utc_now
from warehouse.files.storage import Storage
from warehouse.landing.landing import Landing

LATENCY_S = 0.3
NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPANS = {
    "standard": (date(2024, 1, 1), date(2025, 12, 31)),
    "pro": (date(2017, 1, 1), date(2028, 12, 31)),
    "elite": (date(2017, 1, 1), date(2028, 12, 31)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One backfill. `pages` is the full pages, `best_s` the shortest time by rate and burst."""

    plan: str
    pages: int
    requests: int
    refused: int
    seconds: float
    best_s: float
    one_by_one_s: float

    @property
    def share_of_rate(self) -> float:
        """The share of usable burst + rate x time that was sent."""
        plan = PLANS[self.plan]
        return self.requests / (_usable(plan) + plan.rate_per_s * self.seconds)


def main() -> None:
    size = parse_arguments(__doc__)
    rows = []
    with TemporaryDirectory(prefix="almanac-sweep-", dir=size.folder) as temporary:
        for name, span in SPANS.items():
            rows.append(_measure(Path(temporary) / name, PLANS[name], span))
    _show(rows)
    if size.json is not None:
        figures = [{**asdict(row), "share_of_rate": row.share_of_rate} for row in rows]
        size.json.write_text(json.dumps(figures, indent=1))


def _measure(folder: Path, plan: Plan, span: tuple[date, date]) -> Row:
    with Sandbox(seed=1, now=NOW, export_interval_s=0) as sandbox:
        with _service(sandbox, plan, folder / "count") as service:
            total = service.client.events_total(*span)
        if total is None:
            raise SystemExit("the server does not say how many events there are")
        sandbox.faults.set(f"slow={LATENCY_S}~/v2/events")
        with _service(sandbox, plan, folder / "sweep") as service:
            states = BackfillStates(Storage(folder / "state"), service.landing)
            work = Backfill(service, states, *span)
            sandbox.forget_requests()
            began = time.monotonic()
            for _ in work.run("list"):
                pass
            seconds = time.monotonic() - began
            seen = sandbox.requests
        with _service(sandbox, plan, folder / "one") as service:
            began = time.monotonic()
            pages = sum(1 for _ in service.client.events_pages(date(2025, 1, 1), date(2025, 3, 31)))
            each_s = (time.monotonic() - began) / pages
    due = ceil(total / 100)
    return Row(
        plan=plan.name,
        pages=due,
        requests=len(seen),
        refused=sum(request.status == 429 for request in seen),
        seconds=seconds,
        best_s=max(0.0, (due - _usable(plan)) / plan.rate_per_s),
        one_by_one_s=max(each_s * due, (due - _usable(plan)) / plan.rate_per_s),
    )


@contextmanager
def _service(sandbox: Sandbox, plan: Plan, folder: Path) -> Iterator[CatalogSession]:
    """Open the sandbox with a new key and a full bucket of the plan's pace."""
    key = sandbox.new_key("enterprise", rate_per_s=plan.rate_per_s, burst=plan.burst)
    ledger = Ledger(folder / "key.ledger", Pace(1e6, 1))
    SharedLimiter(ledger, clock=utc_now).on_usage(
        ReportedLimits(None, 0, utc_now() + timedelta(days=9))
    )
    ledger.close()
    pace = Pace(plan.rate_per_s, _usable(plan))
    limiter = SharedLimiter(Ledger(folder / "key.ledger", pace), clock=utc_now)
    with CatalogClient(sandbox.base_url, key, limiter=limiter) as client:
        yield CatalogSession(
            client=client,
            # The whole catalog, at the plan's pace.
            plan=ENTERPRISE,
            source="bench",
            landing=Landing(folder / "landing"),
            clock=sandbox.clock.now,
            log=RequestLog(folder / "state", sandbox.clock.now, key=SecretStr(key)),
            pace=pace,
        )


def _usable(plan: Plan) -> int:
    return usable_burst(plan.rate_per_s, plan.burst, JITTER_S)


def _show(rows: list[Row]) -> None:
    console = Console(highlight=False)
    console.print(f"sweep: a list by pages of 100, each answer {LATENCY_S:.1f} s away")
    table = Table(
        *("rate and burst of", "pages", "requests", "more", "429", "seconds", "at best"),
        *("of burst + rate x time", "one by one"),
    )
    for row in rows:
        table.add_row(
            *(row.plan, str(row.pages), str(row.requests), f"{row.requests / row.pages - 1:.1%}"),
            *(str(row.refused), f"{row.seconds:.1f}", f"{row.best_s:.1f}"),
            *(f"{row.share_of_rate:.0%}", f"{row.one_by_one_s:.0f} s"),
        )
    console.print(table)


if __name__ == "__main__":
    main()
