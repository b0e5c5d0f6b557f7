"""Runs the webhook sender beside the server, and starts it again when it fails."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from catalog.contract.plans import Plan
from catalog.contract.records import Event
from catalog.server.endpoints import EndpointBook
from catalog.server.gating import ViewNames, shown_change
from catalog.server.outbox import Outbox
from catalog.server.sender import WebhookSender
from catalog.server.store import CatalogChange, CatalogStore, Clock

log = logging.getLogger(__name__)

_START_AGAIN_S = 5.0


class Pusher:
    """One sender for one outbox; `run` is a background task of the server."""

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        endpoints: EndpointBook,
        outbox: Outbox,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._clock = clock
        self._sender = WebhookSender(store, clock, endpoints, outbox, self._render, wall)
        self._names: ViewNames | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await self._sender.run()
            except Exception:
                # Nothing is lost: what was not sent is in the outbox, and is sent then.
                log.exception("the webhook sender failed; it starts again in a few seconds")
            await asyncio.sleep(_START_AGAIN_S)

    def wake(self) -> None:
        """Send at once what changed. From any thread."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._sender.wake)

    def _render(self, change: CatalogChange, plan: Plan) -> Event:
        view = self._store.at(self._clock.now())
        if self._names is None or self._names.view is not view:
            self._names = ViewNames(view, view.categories())
        return shown_change(change, plan, self._names)
