"""Homes that are filled from a sandbox over several days, and mirrors of them.

The window of the events is short and the coins are few, so a home is made in seconds.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from application.web.mirror.mirror import Mirror
from catalog.contract.plans import ENTERPRISE
from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from tests.hangs import HANGS_AFTER_S
from tests.unlimited import Unlimited
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope
from warehouse.landing.landing import Landing

SOURCE = "sandbox:1"
FIRST_DAY = datetime(2026, 2, 25, tzinfo=UTC)
FROM, UNTIL = date(2026, 2, 20), date(2026, 3, 20)
DAY = timedelta(days=1)
COINS_NAMED = "ether"
"""The coins with this in their name or slug: a few of 1,500."""
POLLED = (timedelta(hours=9, minutes=20), timedelta(hours=18, seconds=30))
"""The times of the day at which the list is pulled."""
DAYS = 4
STARTS = FIRST_DAY + timedelta(hours=6)
ENDS = FIRST_DAY + (DAYS - 1) * DAY + POLLED[-1] + timedelta(hours=1)
"""The first pull of the shared home, and its last deliveries."""
NOW: datetime = ENDS + timedelta(hours=1)


class AtTime(httpx.BaseTransport):
    """A transport that requests the sandbox at another time than its clock, and only some coins."""

    def __init__(self) -> None:
        self.now = FIRST_DAY
        self._network = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Sandbox-Now"] = f"{self.now:%Y-%m-%dT%H:%M:%SZ}"
        if request.url.path.endswith("/coins"):
            request.url = request.url.copy_merge_params({"q": COINS_NAMED})
        return self._network.handle_request(request)

    def close(self) -> None:
        self._network.close()


@contextmanager
def pulling(sandbox: Sandbox, landing: Landing) -> Iterator[tuple[Puller, AtTime]]:
    """Yield a puller, and the clock that it and the sandbox use."""
    time = AtTime()
    key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with CatalogClient(sandbox.base_url, key, limiter=Unlimited(), transport=time) as client:
        yield (
            Puller(client, landing, plan=ENTERPRISE, source=SOURCE, clock=lambda: time.now),
            time,
        )


def deliver(landing: Landing, listed: Manifest) -> Manifest:
    """Land three deliveries made from a list: a change, a cancellation, an unknown type."""
    rows = [row for _, page in landing.pages(listed) for row in json.loads(page)["data"]]
    at = listed.observed_at + timedelta(hours=1)
    kinds_and_rows = [
        ("event.updated", {**rows[0], "title": f"told at {at.isoformat()}"}),
        ("event.cancelled", {**rows[-1], "cancelledAt": _text(at)}),
        ("event.sung", rows[1]),
    ]
    bodies = [
        (json.dumps({"type": kind, "createdAt": _text(at), "data": row}).encode(), at)
        for kind, row in kinds_and_rows
    ]
    pull = Pull(
        feed="deliveries",
        scope=Scope(),
        plan=ENTERPRISE.name,
        source=SOURCE,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=0,
    )
    return landing.land(pull, bodies)


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


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
