"""Receipt by push, and the changes that push missed and a pull found.

Read from the inbox and the published file; no request is sent. Receipts are by the service's clock;
landing and the start of the receiver are by the machine's.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import duckdb

from catalog.contract.constants import WEBHOOK_MATERIAL
from pipeline.settings import Settings
from resources.inbox.deliveries import waiting_deliveries
from resources.inbox.inbox_file import InboxReader, RefusalCount, inbox_path, lock_path
from resources.inbox.progress import settled_letters
from warehouse.errors import InboxUnusable, WarehouseError
from warehouse.files.locks import holder, is_held
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.sql import Statements

MISSED_FOR: Final = timedelta(days=4)
"""The last retry is sent after a little more than three days."""
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

    `dead_letters` are the delivery ids, the newest first; `failures` the failed attempts to land
    since the last success. `unusable` says why the inbox can't be read, empty if it can.
    """

    has_secrets: bool
    is_running: bool
    started_at: datetime | None
    silent_after_s: float
    last_at: datetime | None = None
    waiting: int = 0
    waiting_since: datetime | None = None
    failures: int = 0
    failed_at: datetime | None = None
    failure: str = ""
    dead_letters: list[str] = field(default_factory=list)
    dead_since: datetime | None = None
    refused: list[RefusalCount] = field(default_factory=list)
    missed: list[MissedChange] = field(default_factory=list)
    unusable: str = ""


def read_push(
    settings: Settings, home: Home, now: datetime, shareable: Callable[[str], str]
) -> PushHealth | None:
    """Return what is received by push, None if it was never set up nor received.

    `now` is by the service's clock; `shareable` returns the text of an error as it may leave this
    machine.
    """
    lock, reader = lock_path(home), InboxReader(home)
    is_running, started = is_held(lock), holder(lock)
    if not (settings.push or is_running or inbox_path(home).exists()):
        return None
    push = PushHealth(
        has_secrets=settings.push,
        is_running=is_running,
        started_at=None if started is None else started.since,
        silent_after_s=timedelta(hours=settings.push_silence_h).total_seconds(),
    )
    try:
        waiting, settled = waiting_deliveries(home), settled_letters(home)
        in_trouble = reader.in_trouble(_READ_MAX)
        letters = [letter for letter in in_trouble if letter.seq not in settled]
        push.last_at, push.waiting = waiting.last_at, waiting.count
        if waiting.count:
            push.waiting_since = reader.first_receipt(after=waiting.progress.landed_to)
        push.failures, push.failed_at = waiting.progress.failures, waiting.progress.failed_at
        push.failure = shareable(waiting.progress.failure or "")
        push.dead_letters = [letter.delivery_id for letter in letters]
        push.dead_since = min((letter.received_at for letter in letters), default=None)
        push.refused = reader.refusals()
        push.missed = _find_missed(home, reader, push, now)
    except InboxUnusable as error:
        push.unusable = shareable(str(error))
    return push


def _find_missed(
    home: Home, reader: InboxReader, push: PushHealth, now: datetime
) -> list[MissedChange]:
    """Return the changes of the last days that push should have brought and a pull showed first.

    Only those since push is received without a long pause: at other times nobody expects it. A
    delivery that arrives late removes its change.
    """
    limit = timedelta(seconds=push.silent_after_s)
    if push.last_at is None or now - push.last_at > limit or not home.warehouse.exists():
        return []
    values = {
        "since": now - MISSED_FOR,
        "until": now - _GRACE,
        "began": reader.received_since(now - MISSED_FOR, gap=limit),
        "material": list(WEBHOOK_MATERIAL),
        "limit": _READ_MAX,
    }
    found: list[MissedChange] = []
    # A file that can't be read has the warning `unpublished`.
    with suppress(duckdb.Error, WarehouseError, OSError), connected(home.warehouse) as connection:
        rows = connection.execute(_SQL["list_pulled_changes"], values).fetchall()
        found = [MissedChange(event_id, tuple(kinds), *rest) for event_id, kinds, *rest in rows]
    received = reader.last_receipts({change.event_id for change in found})
    return [
        change
        for change in found
        if (at := received.get(change.event_id)) is None or at < change.changed_at - _MARGIN
    ]
