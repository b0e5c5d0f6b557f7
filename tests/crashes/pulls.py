"""The landed batches of the crash tests: three days of pulls of a part of the catalog.

Belongs here: pulling from the sandbox at chosen times, and landing some batches in another landing.
Does not: killing (killed_home), comparing (tables).
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx

from catalog.contract.plans import ENTERPRISE
from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from tests.unlimited import Unlimited
from warehouse.landing.batches import Manifest, Pull, Scope
from warehouse.landing.landing import Landing

SOURCE = "sandbox:1"
FIRST_DAY = datetime(2026, 2, 25, tzinfo=UTC)
DAYS = 3
FROM, UNTIL = date(2026, 2, 20), date(2026, 3, 20)
DAY = timedelta(days=1)
COINS_NAMED = "ether"
"""The coins with this in their name or slug: a few of 1,500."""


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


def pull_days(sandbox: Sandbox, landing: Landing, *, days: int = DAYS) -> None:
    """Land some days of every feed: the same batches each time."""
    with pulling(sandbox, landing) as (puller, time):
        for number in range(days):
            pull_day(puller, time, landing, number)


def pull_day(puller: Puller, time: AtTime, landing: Landing, number: int) -> None:
    time.now = FIRST_DAY + number * DAY + timedelta(hours=6)
    puller.export(FROM, UNTIL)
    time.now += timedelta(minutes=5)
    puller.cancellations(time.now - 2 * DAY)
    time.now += timedelta(hours=6)
    listed = puller.events(time.now.date(), time.now.date() + 14 * DAY).manifest
    deliver(landing, listed)
    if number == DAYS - 1:
        time.now += timedelta(hours=2)
        puller.coins()
        puller.categories()


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


def land_again(source: Landing, target: Landing, batch_ids: Iterable[str]) -> None:
    """Land some batches of one landing in another, as their pulls did."""
    for batch_id in batch_ids:
        manifest = source.manifest(batch_id)
        pull = Pull(**{name: getattr(manifest, name) for name in Pull.__struct_fields__})
        target.land(pull, [(body, page.received_at) for page, body in source.pages(manifest)])


def landing_of(root: Path) -> Landing:
    return Landing(root / "landing")


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
