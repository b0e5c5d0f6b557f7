"""Turns the feed of changes into deliveries, and sends them (interface section 6).

The outbox stores each endpoint's position in the feed; a new endpoint begins at the end.
Deliveries are sent at least once, without the freshness delay. They state the catalog's time.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from almanac.core.timestamps import ORIGIN, utc_now
from catalog.contract.constants import (
    SIGNATURE_HEADER,
    WEBHOOK_API_VERSION,
    WEBHOOK_MATERIAL,
    WEBHOOK_RETRY_AFTER_S,
)
from catalog.contract.records import Delivery
from catalog.contract.signatures import sign
from catalog.server.catalog_store import ChangeKind, ChangeQuery, Clock, StoredVersion
from catalog.server.gating import project_cancellation, project_event, project_previous
from catalog.server.sql_store import SqlStore
from catalog.server.webhooks.delivery import Poster
from catalog.server.webhooks.endpoints import Endpoint, EndpointBook
from catalog.server.webhooks.outbox import FeedPosition, Outbox, OutboxDelivery

log = logging.getLogger(__name__)

PAGE_SIZE = 500
_MATERIAL = frozenset({*WEBHOOK_MATERIAL, "impact_band"})


def list_reported_kinds(version: StoredVersion) -> tuple[ChangeKind, ...]:
    """Return the webhook kinds that report a version: none, one or two.

    They report new and restored events, material changes and cancellations, and no withdrawal.
    """
    if version.event is None or version.status == "withdrawn":
        return ()
    if version.status == "cancelled":
        return () if version.cancelled_at is None else ("events.cancelled",)
    is_first = version.version == 1
    if not (is_first or "restored" in version.kinds or _MATERIAL.intersection(version.changed)):
        return ()
    kind: ChangeKind = "events.created" if is_first else "events.updated"
    is_first_major = version.is_first_major and version.event.is_major
    return (kind, "events.high-impact") if is_first_major else (kind,)


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How a sender works. The defaults are for a service; a test can be less patient."""

    retry_after_s: Sequence[float] = WEBHOOK_RETRY_AFTER_S
    """The wait after each failed attempt; after the last attempt a delivery is a dead letter."""
    poll_s: float = 1.0
    per_endpoint: int = 4
    """The parallel attempts to an endpoint."""
    in_order: bool = False
    """Whether an endpoint is sent one delivery after another, in the order of the feed: each waits
    until the one before was accepted, and none becomes a dead letter because it failed. The time of
    delivery and of the signature is when the change became known, so that the same changes are
    always sent as the same bytes."""


@dataclass(repr=False, eq=False)
class WebhookSender:
    """The only sender of an outbox: two on the same file would both send.

    `store` returns the catalog as of a time; it is called on other threads. The clock must not be
    earlier than any change in the feed. `since` is the time after which changes are sent to a new
    endpoint; None is the round before the first that sees it. With `states_created` a delivery
    states when this server learned of its change, and the former values. `due` gives when a new
    delivery is due, in wall time: deliveries are sent in that order.
    """

    store: Callable[[datetime], SqlStore]
    clock: Clock
    book: EndpointBook
    outbox: Outbox
    _: KW_ONLY
    wall: Callable[[], datetime] = utc_now
    poster: Poster = field(default_factory=Poster)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    options: SenderOptions = SenderOptions()
    states_created: bool = False
    since: datetime | None = None
    due: Callable[[], datetime] | None = None

    def __post_init__(self) -> None:
        self._enqueued_until: datetime | None = None
        self._counts: Counter[tuple[str, str]] = Counter()
        self._served: set[str] = set()
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Send until cancelled; an attempt that is interrupted then is repeated later."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    while True:
                        await self._round(tasks)
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._woken.wait(), self.options.poll_s)
                        self._woken.clear()
            except Exception:
                # Nothing is lost: unsent changes are in the outbox or the feed.
                log.exception("the webhook sender failed; it restarts in a few seconds")
            await self.sleep(5.0)

    async def run_once(self) -> None:
        """Enqueue what changed, and return when all due deliveries were tried."""
        async with asyncio.TaskGroup() as tasks:
            await self._round(tasks)

    def wake(self) -> None:
        """Send immediately what changed. May be called from any thread."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._woken.set)

    @property
    def delivered_until(self) -> datetime | None:
        """The time until which every change is delivered or dead; None while one waits."""
        until = self._enqueued_until
        return None if self.outbox.waiting() else until

    def counts(self) -> dict[str, dict[str, int]]:
        """Return for each endpoint how many deliveries were `accepted` since the start, are
        `waiting` or `dead`, and how many changes are `unreported`: of kinds that are never sent."""
        found = Counter(self._counts)
        found.update({(each, state): n for each, state, n in self.outbox.counts()})
        names = ("accepted", "waiting", "dead", "unreported")
        return {each: {name: found[each, name] for name in names} for each, _ in found}

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        await asyncio.to_thread(self._enqueue)
        for endpoint_id in await asyncio.to_thread(self.outbox.waiting) - self._served:
            self._served.add(endpoint_id)
            tasks.create_task(self._serve(endpoint_id))

    def _enqueue(self) -> None:
        """Enqueue what changed since the last call; nothing for an endpoint that gets no push."""
        until = self.clock.now()
        receivers, places = self.book.receivers(), self.outbox.positions()
        for endpoint_id in (self.outbox.waiting() | places.keys()) - receivers.keys():
            known = {each.id: each.disabled_reason for each in self.book.endpoints()}
            reason = known.get(endpoint_id) or "the endpoint was removed"
            self.outbox.drop(endpoint_id, error=reason)
            log.warning("webhook deliveries marked dead: endpoint=%s: %s", endpoint_id, reason)
        if receivers:
            store = self.store(until)
            # Again, since a new publication may know more than the old one's clock.
            now = self.clock.now()
            for endpoint in receivers.values():
                place = places.get(endpoint.id)
                if place is None:
                    # It may have been added since the last round, before what changed since.
                    start = store.head(self.since or min(self._enqueued_until or now, now))
                    place = FeedPosition(store.feed_id, start, store.span.last or now)
                    self.outbox.enqueue(endpoint.id, place)
                self._enqueue_for(endpoint, place, store, now)
        self._enqueued_until = until

    def _enqueue_for(
        self, endpoint: Endpoint, place: FeedPosition, store: SqlStore, now: datetime
    ) -> None:
        head = store.head(now)
        while place.feed_id != store.feed_id or place.seq < head:
            if place.feed_id == store.feed_id:
                page = store.changes(ChangeQuery(until=now, after=place.seq), limit=PAGE_SIZE)
            else:
                known = place.known_from
                text = "the history was built anew: endpoint %s gets what became known after %s"
                log.warning(text, endpoint.id, known.isoformat())
                # All in one page, since a row may be anywhere before the head.
                page = store.changes(ChangeQuery(until=now, since=known, head=head), limit=2**31)
            place = FeedPosition(
                store.feed_id,
                page.rows[-1].seq if page.more else head,
                max([place.known_from, *(version.known_from for version in page.rows)]),
            )
            added = (self._deliveries(version, endpoint, now) for version in page.rows)
            self.outbox.enqueue(endpoint.id, place, chain.from_iterable(added))

    def _deliveries(
        self, version: StoredVersion, endpoint: Endpoint, now: datetime
    ) -> Iterator[OutboxDelivery]:
        """Yield the deliveries of a version to an endpoint. Their ids depend only on version and
        endpoint."""
        kinds, known_from = list_reported_kinds(version), version.known_from
        plan = endpoint.plan
        if version.event is None or not kinds:
            self._counts[endpoint.id, "unreported"] += 1
            return
        data = project_event(version.event, plan)
        if version.status == "cancelled" and version.cancelled_at is not None:
            data = project_cancellation(version.event, version.cancelled_at, plan)
        previous = project_previous(version, plan) if self.states_created else None
        at = known_from if self.options.in_order else now
        for kind in kinds:
            change = (endpoint.id, version.event_id, kind, version.seq, version.version, known_from)
            digest = hashlib.sha256("\n".join(map(str, change)).encode()).hexdigest()
            message = Delivery(
                id=f"evt_dlv_{digest[:24]}",
                type=kind,
                api_version=WEBHOOK_API_VERSION,
                delivered_at=at.replace(microsecond=0),
                data=data,
                # A receiver may have pulled after the change was known, before its publication.
                created_at=at.replace(microsecond=0) if self.states_created else msgspec.UNSET,
                previous=previous or msgspec.UNSET,
            )
            # In order, all are due at the same time, so that the first enqueued is the first sent.
            due = ORIGIN if self.options.in_order else (self.due or self.wall)()
            body = msgspec.json.encode(message)
            yield OutboxDelivery(message.id, endpoint.id, kind, body, known_from, due)

    async def _serve(self, endpoint_id: str) -> None:
        """Send an endpoint its due deliveries, a few at a time, until none is left."""
        limit = 1 if self.options.in_order else self.options.per_endpoint
        try:
            while endpoint_id in self.book.receivers():
                deliveries = await asyncio.to_thread(
                    self.outbox.due, endpoint_id, now=self.wall(), limit=limit
                )
                if not deliveries:
                    return
                async with asyncio.TaskGroup() as attempts:
                    for delivery in deliveries:
                        attempts.create_task(self._attempt(delivery))
        finally:
            self._served.discard(endpoint_id)

    async def _attempt(self, delivery: OutboxDelivery) -> None:
        """Sign and send: each attempt has its own time."""
        endpoint = self.book.receivers().get(delivery.endpoint_id)
        if endpoint is None:
            return
        in_order, waits_s = self.options.in_order, self.options.retry_after_s
        at = delivery.created_at if in_order else self.clock.now()
        signature = sign(delivery.body, secrets=[endpoint.secret], at=at, form=endpoint.signature)
        outcome = await self.poster.post(
            endpoint.url,
            allow_private=endpoint.allow_private,
            body=delivery.body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "almanac-webhooks/2",
                SIGNATURE_HEADER: signature,
            },
        )
        if outcome.delivered:
            self._counts[endpoint.id, "accepted"] += 1
            await asyncio.to_thread(self.outbox.mark_delivered, delivery.id)
            return
        wait_s = waits_s[min(delivery.attempts, len(waits_s) - 1)]
        retry_at: datetime | None = self.wall() + timedelta(seconds=wait_s)
        if outcome.status == 410 or (delivery.attempts >= len(waits_s) and not in_order):
            retry_at = None
        elif in_order:
            retry_at = ORIGIN
        status, error = outcome.status, outcome.error
        await asyncio.to_thread(
            self.outbox.mark_failed, delivery.id, status=status, error=error, retry_at=retry_at
        )
        log.log(
            logging.WARNING if retry_at is None else logging.INFO,
            "webhook failed: delivery=%s endpoint=%s attempt=%d status=%s error=%s next=%s",
            delivery.id,
            endpoint.id,
            delivery.attempts + 1,
            status,
            error,
            "never" if retry_at is None else f"in {wait_s:g} s",
        )
        if status == 410:
            reason = "the receiver answered 410 Gone"
            await asyncio.to_thread(self.book.disable, endpoint.id, reason=reason)
        elif in_order:
            await self.sleep(wait_s)
