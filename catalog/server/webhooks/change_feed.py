"""Turns changes of the catalog into deliveries: which change goes to which endpoint.

Each endpoint is sent what changed after it was added, on the catalog's clock. The command
line that adds it may not know that clock, so this module keeps the instant, with the watermark.
Belongs here: what is enqueued. Does not: sending it (sender).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

import msgspec

from catalog.contract.decisions import WEBHOOK_API_VERSION
from catalog.contract.plans import Plan
from catalog.contract.records import Delivery, Event
from catalog.server.store import CatalogChange, CatalogStore, Clock
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.outbox import Outbox, OutboxDelivery, delivery_id

Render = Callable[[CatalogChange, Plan], Event]
"""Returns the changed event as a plan shows it: for a cancellation, a CancelledEvent."""

BATCH_SIZE = 100
SLICE = timedelta(days=1)
"""How much of the catalog's time is read at once."""
WATERMARK_LAG = timedelta(seconds=60)
"""How far the stored watermark may be behind when nothing was enqueued: only a restart reads those
changes again, and an idle server writes once a minute."""


class Feed:
    """Fills an outbox. The store and `render` are called on the event loop's thread.

    `due` gives when a new delivery is due, in wall time.
    """

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        outbox: Outbox,
        render: Render,
        due: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._clock = clock
        self._outbox = outbox
        self._render = render
        self._due = due
        self._mark: datetime | None = None
        self._stored_mark: datetime | None = None
        self._since: Mapping[str, datetime] = {}

    async def enqueue(self, endpoints: Sequence[Endpoint], plans: Mapping[str, Plan]) -> None:
        """Enqueue what changed since the last call, one delivery for each endpoint in `plans`.

        `plans` has the plan of each endpoint that gets push. What changes while another gets none
        is never enqueued for it.
        """
        now = self._clock.now()
        mark, since = await self._position(endpoints, now)
        served = [endpoint for endpoint in endpoints if endpoint.id in plans]
        while served and mark < now:
            until = min(now, mark + SLICE)
            for batch in batches(self._store.changes(mark, until)):
                deliveries = [
                    self._new_delivery(change, endpoint, plans[endpoint.id], at=now)
                    for change in batch
                    for endpoint in served
                    if change.at > since[endpoint.id]
                ]
                await self._commit(deliveries, batch[-1].at, since)
            mark = until
            # The server answers requests between two slices of a long backlog.
            await asyncio.sleep(0)
        await self._commit((), now, since)

    async def _position(
        self, endpoints: Sequence[Endpoint], now: datetime
    ) -> tuple[datetime, Mapping[str, datetime]]:
        """Return the instant to read from, and since when each endpoint is sent changes.

        A clock that was set back moves both back.
        """
        is_first_round = self._mark is None
        if is_first_round:
            self._stored_mark = await asyncio.to_thread(self._outbox.watermark)
            self._since = await asyncio.to_thread(self._outbox.subscriptions)
        mark = min(self._mark or self._stored_mark or now, now)
        since = {endpoint_id: min(start, now) for endpoint_id, start in self._since.items()}
        for endpoint in endpoints:
            if endpoint.id not in since:
                since[endpoint.id] = _start(
                    endpoint.created_at,
                    mark=mark,
                    now=now,
                    seen_after=now if is_first_round else mark,
                )
        return mark, since

    async def _commit(
        self, deliveries: Sequence[OutboxDelivery], mark: datetime, since: Mapping[str, datetime]
    ) -> None:
        changed = {
            endpoint_id: start
            for endpoint_id, start in since.items()
            if self._since.get(endpoint_id) != start
        }
        stored = self._stored_mark
        if deliveries or changed or stored is None or not stored <= mark < stored + WATERMARK_LAG:
            await asyncio.to_thread(
                self._outbox.enqueue,
                deliveries,
                watermark=mark,
                subscriptions=changed,
            )
            self._stored_mark = mark
        self._mark, self._since = mark, since

    def _new_delivery(
        self, change: CatalogChange, endpoint: Endpoint, plan: Plan, *, at: datetime
    ) -> OutboxDelivery:
        """Return the delivery of a change to an endpoint; its id is the same for the same change.

        `at` is stated as the time of delivery: the body is stored, so each attempt states the same.
        """
        id_ = delivery_id(endpoint.id, change.event.id, kind=change.kind, at=change.at)
        message = Delivery(
            id=id_,
            type=change.kind,
            api_version=WEBHOOK_API_VERSION,
            # The interface has whole seconds, and a change is never later than its delivery.
            delivered_at=at.replace(microsecond=0),
            data=self._render(change, plan),
        )
        return OutboxDelivery(
            id=id_,
            endpoint_id=endpoint.id,
            kind=change.kind,
            body=msgspec.json.encode(message),
            created_at=change.at,
            next_attempt_at=self._due(),
        )


def batches(changes: Sequence[CatalogChange]) -> Iterator[list[CatalogChange]]:
    """Yield the changes in batches; changes of one instant are in one batch."""
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

    Its creation, if the catalog's clock passed that instant since the mark; else it was created on
    another clock, and changes are sent from the last instant before it was seen.
    """
    return created_at if mark < created_at <= now else seen_after
