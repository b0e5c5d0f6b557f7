"""Turns changes of the catalog into letters: which change goes to which endpoint.

Each endpoint is sent what changed after it was added, on the catalog's clock. The command
line that adds it may not know that clock, so the instant is kept here, with the watermark.
Belongs here: what is enqueued. Does not: sending it (sender).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

import msgspec

from catalog.contract.plans import PLANS, Plan
from catalog.contract.records import Delivery, Event
from catalog.server.store import CatalogChange, CatalogStore, Clock
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.outbox import Outbox, OutboxDelivery, delivery_id

Render = Callable[[CatalogChange, Plan], Event]
"""Returns what a plan sees of the changed event: for a cancellation, a CancelledEvent."""

BATCH_SIZE = 100
SLICE = timedelta(days=1)
"""How much of the catalog's time is read at once."""
WATERMARK_LAG = timedelta(seconds=60)
"""How far the stored watermark may be behind when nothing was enqueued: the span is only read
again after a restart, and an idle server writes once a minute."""


class Feed:
    """Fills an outbox. The store and `render` are called on the event loop's thread."""

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        outbox: Outbox,
        render: Render,
        wall: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._clock = clock
        self._outbox = outbox
        self._render = render
        self._wall = wall
        self._mark: datetime | None = None
        self._stored_mark: datetime | None = None
        self._since: Mapping[str, datetime] = {}

    async def enqueue(self, endpoints: Sequence[Endpoint]) -> None:
        """Enqueue what changed since the last time, one letter for each enabled endpoint."""
        now = self._clock.now()
        mark, since = await self._position(endpoints, now)
        enabled = [endpoint for endpoint in endpoints if endpoint.enabled]
        while enabled and mark < now:
            until = min(now, mark + SLICE)
            for batch in batches(self._store.changes(mark, until)):
                letters = [
                    _letter(change, endpoint, self._render)
                    for change in batch
                    for endpoint in enabled
                    if change.at > since[endpoint.id]
                ]
                await self._commit(letters, batch[-1].at, since)
            mark = until
            # The server answers others between two slices of a long way to catch up.
            await asyncio.sleep(0)
        await self._commit((), now, since)

    async def _position(
        self, endpoints: Sequence[Endpoint], now: datetime
    ) -> tuple[datetime, Mapping[str, datetime]]:
        """Return where to read on from, and since when each endpoint is sent changes.

        A clock that was set back takes both with it.
        """
        begins = self._mark is None
        if begins:
            self._stored_mark = await asyncio.to_thread(self._outbox.watermark)
            self._since = await asyncio.to_thread(self._outbox.subscriptions)
        mark = min(self._mark or self._stored_mark or now, now)
        since = {endpoint_id: min(start, now) for endpoint_id, start in self._since.items()}
        for endpoint in endpoints:
            if endpoint.id not in since:
                since[endpoint.id] = _start(
                    endpoint.created_at, mark=mark, now=now, seen_after=now if begins else mark
                )
        return mark, since

    async def _commit(
        self, letters: Sequence[OutboxDelivery], mark: datetime, since: Mapping[str, datetime]
    ) -> None:
        changed = {
            endpoint_id: start
            for endpoint_id, start in since.items()
            if self._since.get(endpoint_id) != start
        }
        stored = self._stored_mark
        if letters or changed or stored is None or not stored <= mark < stored + WATERMARK_LAG:
            await asyncio.to_thread(
                self._outbox.enqueue,
                letters,
                due_at=self._wall(),
                watermark=mark,
                subscriptions=changed,
            )
            self._stored_mark = mark
        self._mark, self._since = mark, since


def batches(changes: Sequence[CatalogChange]) -> Iterator[list[CatalogChange]]:
    """Yield the changes in parts, never two parts with changes of one instant."""
    batch: list[CatalogChange] = []
    for _, simultaneous in groupby(changes, key=attrgetter("at")):
        batch.extend(simultaneous)
        if len(batch) >= BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch


def _start(
    created_at: datetime, *, mark: datetime, now: datetime, seen_after: datetime
) -> datetime:
    """Return the instant after which a newly seen endpoint is sent changes.

    Its creation, if the catalog's clock showed that instant since the mark; else that clock is
    not the one it was created by, and the last instant before it was seen must do.
    """
    return created_at if mark < created_at <= now else seen_after


def _letter(change: CatalogChange, endpoint: Endpoint, render: Render) -> OutboxDelivery:
    """Return the delivery that tells an endpoint of a change; the same for the same change."""
    letter_id = delivery_id(endpoint.id, change.event.id, kind=change.kind, at=change.at)
    delivery = Delivery(
        id=letter_id,
        type=change.kind,
        created_at=change.at,
        data=render(change, PLANS[endpoint.plan]),
    )
    return OutboxDelivery(
        id=letter_id,
        endpoint_id=endpoint.id,
        kind=change.kind,
        body=msgspec.json.encode(delivery),
        created_at=change.at,
    )
