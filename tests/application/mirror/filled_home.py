"""Homes that are filled from a sandbox over several days, and mirrors of them.

The window of the events is short and the coins are few, so a home is made in seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from application.web.mirror.mirror import Mirror
from catalog.sandbox.sandbox import Sandbox
from tests.crashes.pulls import DAY, FIRST_DAY, FROM, UNTIL, deliver, pulling
from tests.hangs import HANGS_AFTER_S
from warehouse.history.merge import merge
from warehouse.home import Home

POLLED = (timedelta(hours=9, minutes=20), timedelta(hours=18, seconds=30))
"""The times of the day at which the list is pulled."""
DAYS = 4
STARTS = FIRST_DAY + timedelta(hours=6)
ENDS = FIRST_DAY + (DAYS - 1) * DAY + POLLED[-1] + timedelta(hours=1)
"""The first pull of the shared home, and its last deliveries."""
NOW: datetime = ENDS + timedelta(hours=1)


def fill(sandbox: Sandbox, home: Home, *, days: int, first: int = 0) -> None:
    """Pull each day an export, cancellations, coins, lists and deliveries, and merge them once.

    `first` is the number of the first day, so that a home can be filled in parts.
    """
    with pulling(sandbox, home.landing) as (puller, time):
        for number in range(first, first + days):
            midnight = FIRST_DAY + number * DAY
            time.now = midnight + timedelta(hours=6)
            puller.export(FROM, UNTIL)
            time.now += timedelta(minutes=5)
            puller.cancellations(time.now - 2 * DAY)
            puller.coins()
            puller.categories()
            for after_midnight in POLLED:
                time.now = midnight + after_midnight
                listed = puller.events(time.now.date(), time.now.date() + 14 * DAY).manifest
            deliver(home.landing, listed)
    merge(home)


@contextmanager
def mirroring(home: Home, state_dir: Path, **options: Any) -> Iterator[tuple[Mirror, httpx.Client]]:
    """Yield a running mirror of a home, and a client of it. Its time is that of the shared home."""
    options.setdefault("wall", lambda: NOW)
    with (
        Mirror(home.warehouse, state_dir=state_dir, **options) as mirror,
        # Without `verify=False` each client reads the certificates of the machine, 20 ms.
        httpx.Client(base_url=mirror.base_url, verify=False, timeout=HANGS_AFTER_S) as client,
    ):
        yield mirror, client
