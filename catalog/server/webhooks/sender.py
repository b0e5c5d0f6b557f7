"""Turns changes of the catalog into deliveries, and sends them (interface section 6).

Each endpoint is sent the changes after its creation, on the catalog's clock. The command that adds
an endpoint may not know that clock, so the outbox keeps the start time beside the watermark.
Deliveries are sent at least once and without the freshness delay. Changes and signatures use the
catalog's clock, retries the wall clock. A sender that fails is restarted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

import msgspec

from catalog.contract.constants import SIGNATURE_HEADER, WEBHOOK_API_VERSION, WEBHOOK_RETRY_AFTER_S
from catalog.contract.plans import Plan
from catalog.contract.records import Delivery, Event
from catalog.contract.signatures import sign
from catalog.server.gating import ViewNames, shown_change
from catalog.server.store import CatalogChange, CatalogStore, Clock
from catalog.server.webhooks.delivery import AttemptOutcome, DeliveryPoster, Poster
from catalog.server.webhooks.endpoints import Endpoint, NoPush, Receivers
from catalog.server.webhooks.outbox import Outbox, OutboxDelivery, delivery_id

Render = Callable[[CatalogChange, Plan], Event]
"""Returns the changed event as a plan shows it: for a cancellation, a CancelledEvent."""

BATCH_SIZE = 100
SLICE = timedelta(days=1)
"""How much of the catalog's time is read together."""
WATERMARK_LAG = timedelta(seconds=60)
"""How far the stored watermark may be behind when nothing was enqueued: only a restart reads those
changes again, and an idle server writes once a minute."""


class ChangeFeed:
    """Fills an outbox. The store and `render` are called on the event loop's thread.

    `due` gives when a new delivery is due, in wall time. With `dates_changes`, a delivery states
    the time of its change as the time of delivery.
    """

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        outbox: Outbox,
        render: Render,
        due: Callable[[], datetime],
        *,
        dates_changes: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._outbox = outbox
        self._render = render
        self._due = due
        self._dates_changes = dates_changes
        self._mark: datetime | None = None
        self._stored_mark: datetime | None = None
        self._since: Mapping[str, datetime] = {}

    @property
    def enqueued_until(self) -> datetime | None:
        """The time up to which changes are in the outbox; None before the first call."""
        return self._mark

    async def enqueue(self, endpoints: Sequence[Endpoint], plans: Mapping[str, Plan]) -> None:
        """Enqueue what changed since the last call, one delivery for each endpoint in `plans`.

        `plans` has the plan of each endpoint that gets push. Changes while an endpoint gets no push
        are never enqueued for it.
        """
        now = self._clock.now()
        mark, since = await self._position(endpoints, now)
        served = [endpoint for endpoint in endpoints if endpoint.id in plans]
        while served and mark < now:
            until = min(now, mark + SLICE)
            for batch in batches(self._store.changes(mark, until)):
                deliveries = [
                    self._new_delivery(
                        change,
                        endpoint,
                        plans[endpoint.id],
                        at=change.at if self._dates_changes else now,
                    )
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
        """Return the time to read from, and since when each endpoint is sent changes.

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
        id_ = delivery_id(
            endpoint.id, change.event.id, kind=change.kind, at=change.at, version=change.version
        )
        message = Delivery(
            id=id_,
            type=change.kind,
            api_version=WEBHOOK_API_VERSION,
            # The interface has whole seconds, and a change is never later than its delivery.
            delivered_at=at.replace(microsecond=0),
            data=self._render(change, plan),
            # A receiver may have pulled the state before the change since the change happened.
            created_at=change.at.replace(microsecond=0)
            if change.version is not None
            else msgspec.UNSET,
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
    """Yield the changes in batches; changes of one time are in one batch."""
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
    """Return the time after which a newly seen endpoint is sent changes.

    Its creation, if the catalog's clock passed that time since the mark; else it was created on
    another clock, and changes are sent from the last time before it was seen.
    """
    return created_at if mark < created_at <= now else seen_after


log = logging.getLogger(__name__)

USER_AGENT = "almanac-webhooks/2"


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How a sender works. The defaults are for a service; a test can be less patient."""

    retry_after_s: Sequence[float] = WEBHOOK_RETRY_AFTER_S
    """The wait after each failed attempt; after the last attempt a delivery is a dead letter."""
    poll_s: float = 1.0
    per_endpoint: int = 4
    """The parallel attempts to an endpoint."""
    in_all: int = 64
    in_order: bool = False
    """Whether an endpoint is sent one delivery after another, in the order of the changes: each
    waits until the one before was accepted, and none becomes a dead letter because it failed. The
    time of delivery and of the signature is the time of the change, so that the same changes are
    always sent as the same bytes."""


class WebhookSender:
    """The only sender of an outbox: two on the same file would both send.

    The store and `render` are called on the event loop's thread, the files on others. `due` gives
    when a new delivery is due, in wall time: deliveries are sent in that order.
    """

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        receivers: Receivers,
        outbox: Outbox,
        render: Render,
        wall: Callable[[], datetime],
        *,
        poster: DeliveryPoster | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        options: SenderOptions | None = None,
        due: Callable[[], datetime] | None = None,
    ) -> None:
        self._clock = clock
        self._receivers = receivers
        self._outbox = outbox
        self._wall = wall
        self._options = options or SenderOptions()
        self._feed = ChangeFeed(
            *(store, clock, outbox, render, due or wall), dates_changes=self._options.in_order
        )
        self._poster = poster or Poster()
        self._sleep = sleep
        self._slots = asyncio.Semaphore(self._options.in_all)
        self._woken = asyncio.Event()
        self._enqueuing = asyncio.Lock()
        self._served: set[str] = set()

    async def run(self) -> None:
        """Send until cancelled; an attempt that is interrupted then is repeated later.

        Raises:
            ExceptionGroup: the store, the outbox or the book failed. Nothing is lost; run again.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._round(tasks)
                await self._pause()

    async def run_once(self) -> None:
        """Enqueue what changed, and return when all due deliveries were tried."""
        async with asyncio.TaskGroup() as tasks:
            await self._round(tasks)

    def wake(self) -> None:
        """Start a round now rather than at the next poll. Call it on the event loop's thread."""
        self._woken.set()

    @property
    def enqueued_until(self) -> datetime | None:
        """The time up to which changes are in the outbox; None before the first round."""
        return self._feed.enqueued_until

    async def _pause(self) -> None:
        nap = asyncio.ensure_future(self._sleep(self._options.poll_s))
        call = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((nap, call), return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            call.cancel()
        self._woken.clear()

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        async with self._enqueuing:
            await self._feed.enqueue(self._receivers.all(), self._receivers.with_push())
        for endpoint_id in await asyncio.to_thread(self._outbox.waiting_endpoints):
            if endpoint_id not in self._served:
                self._served.add(endpoint_id)
                tasks.create_task(self._serve(endpoint_id))

    async def _serve(self, endpoint_id: str) -> None:
        """Send an endpoint its due deliveries, a few at a time, until none is left."""
        try:
            while deliveries := await self._due(endpoint_id):
                if self._options.in_order:
                    await self._attempt_in_order(deliveries)
                    continue
                async with asyncio.TaskGroup() as attempts:
                    for delivery in deliveries:
                        attempts.create_task(self._attempt(delivery))
        finally:
            self._served.discard(endpoint_id)

    async def _due(self, endpoint_id: str) -> tuple[OutboxDelivery, ...]:
        try:
            self._receivers.get(endpoint_id)
        except NoPush as refusal:
            await self._mark_dead(endpoint_id, str(refusal))
            return ()
        if self._options.in_order:
            return await asyncio.to_thread(self._outbox.next, endpoint_id, limit=BATCH_SIZE)
        return await asyncio.to_thread(
            self._outbox.due, endpoint_id, now=self._wall(), limit=self._options.per_endpoint
        )

    async def _attempt_in_order(self, deliveries: Sequence[OutboxDelivery]) -> None:
        """Attempt deliveries in turn until one fails, and then wait."""
        for delivery in deliveries:
            if not await self._attempt(delivery):
                await self._sleep(self._wait_s(delivery))
                return

    async def _attempt(self, delivery: OutboxDelivery) -> bool:
        """Return whether no other attempt follows."""
        async with self._slots:
            try:
                endpoint = self._receivers.get(delivery.endpoint_id)
            except NoPush:
                return True  # `_due` marks it dead in the next round
            outcome = await self._post(delivery, endpoint)
        if outcome.delivered:
            await asyncio.to_thread(
                self._outbox.mark_delivered, delivery.id, status=outcome.status or 200
            )
            log.debug("webhook delivered: delivery=%s status=%s", delivery.id, outcome.status)
        elif outcome.gone:
            await self._fail(delivery, outcome, retry_at=None)
            await self._disable(delivery.endpoint_id)
        else:
            retry_at = self._next_attempt(delivery)
            await self._fail(delivery, outcome, retry_at=retry_at)
            return retry_at is None
        return True

    async def _post(self, delivery: OutboxDelivery, endpoint: Endpoint) -> AttemptOutcome:
        """Sign and send: each attempt has its own time and may have other secrets."""
        secrets = endpoint.signing_secrets(self._wall())
        at = delivery.created_at if self._options.in_order else self._clock.now()
        return await self._poster.post(
            endpoint.url,
            allow_private=endpoint.allow_private,
            body=delivery.body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": USER_AGENT,
                SIGNATURE_HEADER: sign(
                    delivery.body, secrets=secrets, at=at, form=endpoint.signature
                ),
            },
        )

    def _next_attempt(self, delivery: OutboxDelivery) -> datetime | None:
        if delivery.attempts >= len(self._options.retry_after_s) and not self._options.in_order:
            return None
        return self._wall() + timedelta(seconds=self._wait_s(delivery))

    def _wait_s(self, delivery: OutboxDelivery) -> float:
        """Return the wait after the next failure; the last of the schedule stays."""
        waits_s = self._options.retry_after_s
        return waits_s[min(delivery.attempts, len(waits_s) - 1)]

    async def _fail(
        self, delivery: OutboxDelivery, outcome: AttemptOutcome, *, retry_at: datetime | None
    ) -> None:
        await asyncio.to_thread(
            self._outbox.mark_failed,
            delivery.id,
            status=outcome.status,
            error=outcome.error,
            retry_at=retry_at,
        )
        log.log(
            logging.WARNING if retry_at is None else logging.INFO,
            "webhook failed: delivery=%s endpoint=%s attempt=%d status=%s error=%s next=%s",
            delivery.id,
            delivery.endpoint_id,
            delivery.attempts + 1,
            outcome.status,
            outcome.error,
            "never" if retry_at is None else retry_at.isoformat(),
        )

    async def _disable(self, endpoint_id: str) -> None:
        """Disable an endpoint that answered 410: nothing more is sent to it."""
        reason = "the receiver answered 410 Gone"
        await asyncio.to_thread(self._receivers.disable, endpoint_id, reason=reason)
        await self._mark_dead(endpoint_id, reason)

    async def _mark_dead(self, endpoint_id: str, reason: str) -> None:
        await asyncio.to_thread(self._outbox.mark_dead, endpoint_id, error=reason)
        log.warning("webhook deliveries marked dead: endpoint=%s reason=%s", endpoint_id, reason)


_RESTART_AFTER_S = 5.0


class Pusher:
    """One sender for one outbox; `run` is a background task of the server."""

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        receivers: Receivers,
        outbox: Outbox,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        options: SenderOptions | None = None,
        poster: DeliveryPoster | None = None,
        due: Callable[[], datetime] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dates_changes = options is not None and options.in_order
        self._sender = WebhookSender(
            *(store, clock, receivers, outbox, self._render, wall),
            options=options,
            poster=poster,
            due=due,
        )
        self._names: ViewNames | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await self._sender.run()
            except Exception:
                # Nothing is lost: what was not sent is in the outbox and is sent after the restart.
                log.exception("the webhook sender failed; it restarts in a few seconds")
            await asyncio.sleep(_RESTART_AFTER_S)

    @property
    def enqueued_until(self) -> datetime | None:
        """The time up to which changes are in the outbox; None before the first round."""
        return self._sender.enqueued_until

    def wake(self) -> None:
        """Send immediately what changed. May be called from any thread."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._sender.wake)

    def _render(self, change: CatalogChange, plan: Plan) -> Event:
        view = self._store.at(change.at if self._dates_changes else self._clock.now())
        if self._names is None or self._names.view is not view:
            self._names = ViewNames(view, view.categories())
        return shown_change(change, plan, self._names)
