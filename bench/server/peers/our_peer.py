"""Our complete server: the sandbox with an Enterprise key whose limits are never reached."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlencode

from bench.server.load import fetch
from bench.server.peers.peer import Shown, get
from bench.server.process import Running, own_server
from bench.server.workloads import CoinSearch, EventsPage, SingleEvent, WorkRequest


class OurPeer:
    """Sends the key with each request; a second page uses the cursor of its first."""

    name = "ours"
    settings = (
        "the sandbox as `almanac sandbox` runs it: key file, bucket, quota, signed cursors, ETag, "
        "metrics, request log, fault layer; Enterprise key with 1e6/s and burst 1e6"
    )

    def __init__(self, core: int) -> None:
        self._core = core
        self._headers: tuple[str, ...] = ()
        self._cursors: dict[EventsPage, str] = {}

    def start(self) -> AbstractContextManager[Running]:
        return own_server(self._core, "ours")

    def headers(self, running: Running) -> tuple[str, ...]:
        """Return the headers of each request."""
        return (f"x-api-key: {running.details['key']}",)

    def learn(self, running: Running, pages: Sequence[EventsPage]) -> None:
        self._headers = self.headers(running)
        second = [page for page in pages if page.after is not None]
        bodies = fetch(running.port, [get(_list_target(page), *self._headers) for page in second])
        for page, body in zip(second, bodies, strict=True):
            self._cursors[page] = json.loads(body)["meta"]["cursor"]

    def request(self, request: WorkRequest) -> bytes:
        match request:
            case EventsPage():
                target = _list_target(request, self._cursors.get(request))
            case SingleEvent(event_id):
                target = f"/v2/events/{event_id}"
            case CoinSearch(q, limit):
                target = "/v2/coins?" + urlencode({"q": q, "limit": limit})
        return get(target, *self._headers)

    def shown(self, request: WorkRequest, body: bytes) -> Shown:
        return wire_shown(request, body)


def wire_shown(request: WorkRequest, body: bytes) -> Shown:
    """Read an answer of the interface's form."""
    answer = json.loads(body)
    if isinstance(request, SingleEvent):
        return Shown((_with_links(answer),))
    name = "id" if isinstance(request, EventsPage) else "slug"
    return Shown(tuple(row[name] for row in answer["data"]), answer["meta"]["total"])


def _with_links(event: dict[str, Any]) -> str:
    """Return the id with coins and categories: the single event must be served with them."""
    slugs = ",".join(sorted(coin["slug"] for coin in event["coins"]))
    return f"{event['id']} {slugs} {sorted(event['categories'])}"


def _list_target(page: EventsPage, cursor: str | None = None) -> str:
    query: dict[str, str | int] = {"from": page.lower, "to": page.upper, "limit": page.limit}
    if page.coins:
        query["coins"] = ",".join(page.coins)
    if page.categories:
        query["categories"] = ",".join(page.categories)
    if cursor is not None:
        query["cursor"] = cursor
    return "/v2/events?" + urlencode(query)
