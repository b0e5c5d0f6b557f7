"""Receipt by push, and the changes that push missed and a pull found.

Read from the inbox and the published file; no request is sent. Receipts are by the service's clock;
landing and the start of the receiver are by the machine's.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import duckdb

from catalog.contract.constants import WEBHOOK_MATERIAL
from pipeline.settings import Settings
from resources.inbox import Inbox, list_receipts, read_landed, receipt_of
from warehouse.errors import WarehouseError
from warehouse.files.locks import holder, is_held
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.sql import Statements

MISSED_FOR: Final = timedelta(days=4)
"""The last retry is sent after a little more than three days."""
_LOOKED_BACK: Final = timedelta(days=30)
"""A delivery before that does not count as the last one."""
_GRACE: Final = timedelta(hours=1)
"""By then the first three retries were sent."""
_MARGIN: Final = timedelta(minutes=5)
"""By how much the clocks of a change and of its receipt may differ."""
_READ_MAX: Final = 1_000
_SQL: Final = Statements(__package__)


@dataclass(frozen=True, slots=True)
class MissedChange:
    """A change that push should have brought, and that a pull of `feed` showed first."""

    event_id: str
    change_kinds: tuple[str, ...]
    feed: str
    changed_at: datetime
    known_at: datetime


@dataclass(slots=True)
class PushHealth:
    """The receipt by push. `started_at` is when the receiver was last started.

    `rejected` are the names of deliveries that can't be applied, the oldest first.
    """

    has_secrets: bool
    is_running: bool
    started_at: datetime | None
    silent_after_s: float
    last_at: datetime | None = None
    waiting: int = 0
    waiting_since: datetime | None = None
    rejected: list[str] = field(default_factory=list)
    rejected_since: datetime | None = None
    missed: list[MissedChange] = field(default_factory=list)


def read_push(settings: Settings, home: Home, now: datetime) -> PushHealth | None:
    """Return what is received by push, None if it was never set up nor received.

    `now` is by the service's clock.
    """
    is_running, started = is_held(home.receiver_lock), holder(home.receiver_lock)
    if not (settings.push or is_running or home.inbox.exists()):
        return None
    push = PushHealth(
        has_secrets=settings.push,
        is_running=is_running,
        started_at=None if started is None else started.since,
        silent_after_s=timedelta(hours=settings.push_silence_h).total_seconds(),
    )
    inbox, receipts = Inbox(home), list_receipts(home, now - _LOOKED_BACK)
    waiting, push.rejected = inbox.names(), inbox.names("rejected")
    push.last_at, push.waiting = max(receipts, default=None), len(waiting)
    push.waiting_since = min(map(receipt_of, waiting), default=None)
    push.rejected_since = min(map(receipt_of, push.rejected), default=None)
    push.missed = _find_missed(home, receipts, push, now)
    return push


def _find_missed(
    home: Home, receipts: list[datetime], push: PushHealth, now: datetime
) -> list[MissedChange]:
    """Return the changes of the last days that push should have brought and a pull showed first.

    Only those since push is received without a long pause: at other times nobody expects it. A
    delivery that arrives late removes its change.
    """
    limit, since = timedelta(seconds=push.silent_after_s), now - MISSED_FOR
    if push.last_at is None or now - push.last_at > limit or not home.warehouse.exists():
        return []
    began = push.last_at
    for receipt in reversed(receipts):
        if receipt < since or began - receipt > limit:
            break
        began = receipt
    values = {
        "since": since,
        "until": now - _GRACE,
        "began": began,
        "material": list(WEBHOOK_MATERIAL),
        "limit": _READ_MAX,
    }
    found: list[MissedChange] = []
    # A file that can't be read has the warning `unpublished`.
    with suppress(duckdb.Error, WarehouseError, OSError), connected(home.warehouse) as connection:
        rows = connection.execute(_SQL["list_pulled_changes"], values).fetchall()
        found = [MissedChange(event_id, tuple(kinds), *rest) for event_id, kinds, *rest in rows]
    received = _last_receipts(home, since) if found else {}
    return [
        change
        for change in found
        if (at := received.get(change.event_id)) is None or at < change.changed_at - _MARGIN
    ]


def _last_receipts(home: Home, since: datetime) -> dict[str, datetime]:
    """Return when a delivery of an event was received last, by event."""
    inbox, found = Inbox(home), dict[str, datetime]()
    waiting = (inbox.read(name, "waiting") for name in inbox.names())
    for delivery in (*read_landed(home, since), *waiting):
        event_id = delivery.head.event_id
        if event_id is not None:
            found[event_id] = max(delivery.received_at, found.get(event_id, delivery.received_at))
    return found
