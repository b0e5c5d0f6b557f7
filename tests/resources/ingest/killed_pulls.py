"""A process that pulls and is killed with SIGKILL in the middle, once for each line it reads.

Run as a program, with one fork for each line: a new process takes half a second, a fork no time.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from catalog.contract.plans import PLANS
from resources.http.client import CatalogClient
from resources.ingest.context import LandedBatch
from resources.ingest.puller import Puller
from tests.resources.fakes import FakeTime, FaultScript
from tests.resources.pulls import MACHINE_AT, SOURCE
from tests.unlimited import Unlimited
from warehouse.landing.batches import Manifest, Pull
from warehouse.landing.landing import Landing


class Killing(msgspec.Struct):
    """One pull and where it is killed: after the journal has `page` pages, or `before` or `after`
    it is landed."""

    base_url: str
    key: str
    root: str
    feed: str
    point: str
    page: int = 0
    lower: str = "2026-03-01"
    upper: str = "2026-03-31"
    coins: list[str] | None = None
    faults: list[str] = []
    plan: str = "enterprise"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KilledLanding(Landing):
    def __init__(self, root: Path, point: str) -> None:
        super().__init__(root)
        self.point = point

    def land(self, pull: Pull, bodies: Iterable[tuple[bytes, datetime | None]]) -> Manifest:
        if self.point == "before":
            die()
        manifest = super().land(pull, bodies)
        if self.point == "after":
            die()
        return manifest


def pull_until_killed(what: Killing) -> None:
    pages = iter(range(1, 1_000_000))

    def on_page(feed: str, rows: int, total: int | None) -> None:
        if next(pages) == what.page:
            die()

    client = CatalogClient(
        what.base_url,
        what.key,
        limiter=Unlimited(),
        ambient=FakeTime().ambient(),
        transport=FaultScript(*what.faults),
    )
    puller = Puller(
        client,
        KilledLanding(Path(what.root), what.point),
        plan=PLANS[what.plan],
        source=SOURCE,
        clock=lambda: MACHINE_AT,
        on_page=on_page,
    )
    pull_of(puller, what)()


def pull_of(puller: Puller, what: Killing) -> Callable[[], LandedBatch]:
    if what.feed != "events":
        plain: dict[str, Callable[[], LandedBatch]] = {
            "coins": puller.coins,
            "cancellations": puller.cancellations,
        }
        return plain[what.feed]
    bounds: Any = (date.fromisoformat(what.lower), date.fromisoformat(what.upper))
    return lambda: puller.events(*bounds, coins=what.coins)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            pull_until_killed(msgspec.json.decode(line, type=Killing))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
