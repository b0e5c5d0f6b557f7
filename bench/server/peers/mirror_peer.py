"""The mirror over a home that pulled the rows of the run, now and as of a past time."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from bench.server.peers.our_peer import OurPeer
from bench.server.peers.rows import NOW, SEED
from bench.server.process import Running, own_server
from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import ENTERPRISE, plan_window
from catalog.sandbox.sandbox import Sandbox
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

_PULLED_AT = NOW - timedelta(hours=1)
_AS_OF = NOW - timedelta(minutes=30)


class MirrorPeer(OurPeer):
    """Sends no key, as on loopback."""

    name = "mirror"
    settings = (
        "the mirror as `almanac serve` runs it, over a home that pulled the same events and coins; "
        "no key, the plan Enterprise"
    )

    def __init__(self, warehouse: Path, core: int) -> None:
        super().__init__(core)
        self._warehouse = warehouse

    def start(self) -> AbstractContextManager[Running]:
        return own_server(self._core, "mirror", str(self._warehouse))

    def headers(self, running: Running) -> tuple[str, ...]:
        return ()


class AsOfPeer(MirrorPeer):
    """Sends the time of the pull before the last with each request."""

    name = "mirror, as of"
    settings = "the same, each request as of a past time: answered by SQL"

    def headers(self, running: Running) -> tuple[str, ...]:
        return (f"x-as-of: {_AS_OF:%FT%TZ}",)


def publish_world(root: Path) -> Home:
    """Publish the rows that the key of the run sees: pulled once, and an hour later a page again.

    So `_AS_OF` is a past time at which all rows were known.
    """
    home = Home(root)
    home.claim("bench")
    window = plan_window(ENTERPRISE, NOW)
    with (
        Sandbox(seed=SEED, now=NOW, export_interval_s=0) as sandbox,
        httpx.Client(base_url=sandbox.base_url, verify=False, timeout=60.0) as client,
    ):
        client.headers["x-api-key"] = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        span = {"from": f"{window.lower:%F}"}
        pages = list(_pages(client, "/v2/events", {**span, "limit": EVENTS_LIMIT_MAX}))
        _land(home, "events", pages, late=False)
        _land(home, "events", pages[:1], late=True)
        _land(home, "coins", list(_pages(client, "/v2/coins", {"limit": 100})), late=False)
        _land(home, "categories", [client.get("/v2/categories").content], late=False)
    merge(home)
    return home


def _pages(client: httpx.Client, path: str, query: dict[str, Any]) -> Iterator[bytes]:
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get(path, params={**query, **({"cursor": cursor} if cursor else {})})
        answer.raise_for_status()
        yield answer.content
        cursor = answer.json()["meta"]["cursor"]


def _land(home: Home, feed: Feed, bodies: list[bytes], *, late: bool) -> None:
    at = NOW if late else _PULLED_AT
    pull = Pull(
        feed=feed,
        scope=Scope(),
        plan="enterprise",
        source="bench",
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=len(bodies),
        why_incomplete="a page of the list" if late else None,
    )
    home.landing.land(pull, [(body, None) for body in bodies])
