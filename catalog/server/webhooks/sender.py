"""Delivers webhooks from the outbox, which it fills, beside the server (interface section 6).

At least once, and without the freshness delay. Two clocks: changes and signatures use the
catalog's, retries use the wall clock. A sender that fails is restarted. Belongs here: what an
outcome leads to. Does not: one attempt (delivery), the file (outbox), who gets what (receivers,
change_feed).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catalog.contract.decisions import SIGNATURE_HEADER, WEBHOOK_RETRY_AFTER_S
from catalog.contract.plans import Plan
from catalog.contract.records import Event
from catalog.contract.signature import sign
from catalog.server.gating import ViewNames, shown_change
from catalog.server.store import CatalogChange, CatalogStore, Clock
from catalog.server.webhooks.change_feed import Feed, Render
from catalog.server.webhooks.delivery import AttemptOutcome, Poster, Posts
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.outbox import Outbox, OutboxDelivery
from catalog.server.webhooks.receivers import NoPush, Receivers

log = logging.getLogger(__name__)

USER_AGENT = "almanac-webhooks/2"


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How a sender works. Those of a service are the defaults; a test can be less patient."""

    retry_after_s: Sequence[float] = WEBHOOK_RETRY_AFTER_S
    """The wait after each failed attempt; after the last attempt a delivery is a dead letter."""
    poll_s: float = 1.0
    per_endpoint: int = 4
    """The attempts at once to an endpoint."""
    in_all: int = 64


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
        poster: Posts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        options: SenderOptions | None = None,
        due: Callable[[], datetime] | None = None,
    ) -> None:
        self._clock = clock
        self._receivers = receivers
        self._outbox = outbox
        self._wall = wall
        self._options = options or SenderOptions()
        self._feed = Feed(store, clock, outbox, render, due or wall)
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
        return await asyncio.to_thread(
            self._outbox.due, endpoint_id, now=self._wall(), limit=self._options.per_endpoint
        )

    async def _attempt(self, delivery: OutboxDelivery) -> None:
        async with self._slots:
            try:
                endpoint = self._receivers.get(delivery.endpoint_id)
            except NoPush:
                return  # `_due` marks it dead in the next round
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
            await self._fail(delivery, outcome, retry_at=self._next_attempt(delivery))

    async def _post(self, delivery: OutboxDelivery, endpoint: Endpoint) -> AttemptOutcome:
        """Sign and send: each attempt has its own time and may have other secrets."""
        secrets = endpoint.signing_secrets(self._wall())
        return await self._poster.post(
            endpoint.url,
            allow_private=endpoint.allow_private,
            body=delivery.body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": USER_AGENT,
                SIGNATURE_HEADER: sign(
                    delivery.body, secrets=secrets, at=self._clock.now(), form=endpoint.signature
                ),
            },
        )

    def _next_attempt(self, delivery: OutboxDelivery) -> datetime | None:
        waits_s = self._options.retry_after_s
        if delivery.attempts >= len(waits_s):
            return None
        return self._wall() + timedelta(seconds=waits_s[delivery.attempts])

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
        poster: Posts | None = None,
        due: Callable[[], datetime] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
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

    def wake(self) -> None:
        """Send at once what changed. May be called from any thread."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._sender.wake)

    def _render(self, change: CatalogChange, plan: Plan) -> Event:
        view = self._store.at(self._clock.now())
        if self._names is None or self._names.view is not view:
            self._names = ViewNames(view, view.categories())
        return shown_change(change, plan, self._names)
