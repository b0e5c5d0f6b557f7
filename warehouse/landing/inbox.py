"""The inbox: webhook deliveries as files, from receipt until they are in a landed batch.

    inbox/RECEIPT-HASH.json             a waiting delivery: the bytes that were sent
    inbox/rejected/RECEIPT-HASH.json    a delivery that can't be applied; .reason says why
    inbox/dismissed/RECEIPT-HASH.json   a delivery that a person left out permanently

RECEIPT is the time of receipt by the service's clock, in UTC; HASH is of the bytes. A batch is
written before its files are removed. A delivery whose id is in landing already is a duplicate: it
was sent again, or a killed process did not remove its file.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from almanac.core.errors import WarehouseError
from almanac.core.files import make_folders, sync
from almanac.core.progress import phase
from warehouse.errors import DamagedBatch
from warehouse.files.locks import hold_lock
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope, parse_feed
from warehouse.normalise.json_feeds import DeliveryHead, read_delivery_head

PUSH_PLAN: Final = "elite"
"""The lowest plan with push."""
SENT_AGAIN_WITHIN: Final = timedelta(days=4)
"""The last retry of a delivery is sent after a little more than three days."""
PUSH_SILENCE: Final = timedelta(days=1)
"""Push is taken to be off or broken if no delivery arrives for this long: the service changes many
events a day."""
AT_ONCE: Final = 500
"""Deliveries in one batch."""
ABANDONED_S: Final = 3_600.0
ID_REUSED: Final = "its id was received before, with another body"
_RECEIPT: Final = "%Y%m%dT%H%M%S.%fZ"
_HASH_CHARS: Final = len("-.json") + 32
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9a-f]{32}\.json", re.ASCII)

State = Literal["waiting", "rejected", "dismissed"]
STATES: Final[tuple[State, ...]] = ("waiting", "rejected", "dismissed")


@dataclass(frozen=True)
class ReceivedDelivery:
    """A delivery as it was received."""

    received_at: datetime
    body: bytes = field(repr=False)

    @cached_property
    def head(self) -> DeliveryHead:
        return read_delivery_head(self.body)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @cached_property
    def identity(self) -> str:
        """The id that its sender gave it; without one, the hash of the body."""
        return self.head.delivery_id or self.digest


class Inbox:
    """The inbox of a home. Receivers and landing may use it at the same time.

    `plan` is the plan of the key: what it shows is what a delivery contains.
    """

    def __init__(self, home: Home, plan: str = PUSH_PLAN) -> None:
        self._home = home
        self._plan = plan
        self.files = Storage(home.inbox)

    def store(self, body: bytes, received_at: datetime) -> None:
        """Write a delivery durably: when this returns, it is on disk.

        Raises:
            OSError: it is not stored, by a full disk for example.
        """
        receipt = received_at.astimezone(UTC).strftime(_RECEIPT)
        self.files.put(f"{receipt}-{hashlib.sha256(body).hexdigest()[:32]}.json", body)

    def check_writable(self) -> None:
        """Raises OSError: no delivery could be stored."""
        with self.files.staging() as staged:
            staged.write_bytes(b"{}")
            sync(staged)

    def names(self, state: State = "waiting") -> list[str]:
        """Return the names of the deliveries in a state, in order of receipt."""
        try:
            found = [path.name for path in self.path("", state).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if _NAME.fullmatch(name))

    def path(self, name: str, state: State) -> Path:
        return self.files.root / ("" if state == "waiting" else state) / name

    def read(self, name: str, state: State) -> ReceivedDelivery:
        return ReceivedDelivery(read_receipt_time(name), self.path(name, state).read_bytes())

    def reason(self, name: str, state: State) -> str | None:
        """Return why a delivery was rejected, None if that is not known."""
        try:
            return self._reason(name, state).read_text("utf-8")
        except FileNotFoundError:
            return None

    def land(self, clock: Callable[[], datetime]) -> list[Manifest]:
        """Land the deliveries that wait, and reject those that can't be applied.

        `clock` is the machine's. Each delivery is in one batch, also if a process is killed.

        Raises:
            WarehouseError: another process lands them for longer than the home's wait; or the
                home has no stamp.
            OSError: landing can't be written; what was landed stays, and the rest waits.
        """
        if not self.names():
            return []
        with self._lock():
            return self._land("waiting", self.names(), clock)

    def retry(self, names: Iterable[str], clock: Callable[[], datetime]) -> list[Manifest]:
        """Land the rejected deliveries that this version can read, even if their id is known.

        The others stay. Raises as `land`.
        """
        with self._lock():
            readable = [
                name
                for name in sorted(set(names) & set(self.names("rejected")))
                if self.read(name, "rejected").head.why_unreadable is None
            ]
            return self._land("rejected", readable, clock)

    def dismiss(self, names: Iterable[str]) -> None:
        """Leave rejected deliveries out permanently. Their files are kept."""
        with self._lock():
            for name in set(names) & set(self.names("rejected")):
                self.files.adopt(self.path(name, "rejected"), f"dismissed/{name}")
                with suppress(FileNotFoundError):
                    reason = self._reason(name, "dismissed")
                    self._reason(name, "rejected").replace(reason)

    def _reason(self, name: str, state: State) -> Path:
        return self.path(name, state).with_suffix(".reason")

    def _lock(self) -> AbstractContextManager[bool]:
        home = self._home
        return hold_lock(home.state / "inbox.lock", "to land deliveries", wait_s=home.wait_s)

    def _land(
        self, state: State, names: Sequence[str], clock: Callable[[], datetime]
    ) -> list[Manifest]:
        """Store one batch of deliveries per day of receipt, since each day is merged separately."""
        manifests: list[Manifest] = []
        if not names:
            return manifests
        set_aside = {name[-_HASH_CHARS:] for s in STATES[1:] for name in self.names(s)}
        make_folders(self.path("", "rejected"))
        landed: dict[str, set[str]] = {}
        for delivery in read_landed(self._home, read_receipt_time(names[0]) - SENT_AGAIN_WITHIN):
            landed.setdefault(delivery.identity, set()).add(delivery.digest)
        done = 0
        for _, group in groupby(names, key=lambda name: read_receipt_time(name).date()):
            of_day = list(group)
            for start in range(0, len(of_day), AT_ONCE):
                part = of_day[start : start + AT_ONCE]
                phase("land deliveries", done, len(names))
                done += len(part)
                new = self._new_deliveries(part, state, landed, set_aside)
                sync(self.path("", "rejected"))
                if new:
                    manifests.append(self._land_batch(new, clock))
                for name in part:
                    self.path(name, state).unlink(missing_ok=True)  # A rejected one has moved.
                    if state == "rejected":
                        self._reason(name, state).unlink(missing_ok=True)
                sync(self.path("", state))
        return manifests

    def _new_deliveries(
        self,
        names: Iterable[str],
        state: State,
        landed: dict[str, set[str]],
        set_aside: set[str],
    ) -> list[ReceivedDelivery]:
        """Return the deliveries that are not stored in a batch yet, and record them as stored.
        Rejects others."""
        new: list[ReceivedDelivery] = []
        for name in names:
            delivery = self.read(name, state)
            digests = landed.get(delivery.identity, set())
            why = delivery.head.why_unreadable or (ID_REUSED if digests else None)
            if delivery.digest in digests:
                continue
            if why is not None and state == "waiting":
                if name[-_HASH_CHARS:] not in set_aside:  # Otherwise it was sent again.
                    set_aside.add(name[-_HASH_CHARS:])
                    self._reason(name, "rejected").write_text(why, "utf-8")
                    self.path(name, "waiting").replace(self.path(name, "rejected"))
                continue
            landed[delivery.identity] = digests | {delivery.digest}
            new.append(delivery)
        return new

    def _land_batch(
        self, deliveries: Sequence[ReceivedDelivery], clock: Callable[[], datetime]
    ) -> Manifest:
        home, observed_at = self._home, max(delivery.received_at for delivery in deliveries)
        stamp = home.stamp()
        if stamp is None:
            raise WarehouseError(
                f"{home.root} has an inbox but no home.json. Nothing was landed. `almanac receive` "
                "writes it when it starts, with the source of the settings."
            )
        pull = Pull(
            feed="deliveries",
            scope=Scope(),
            plan=self._plan,
            source=stamp.source,
            observed_at=observed_at,
            # Of a delivery that doesn't say when its content was true.
            content_at=observed_at,
            landed_at=clock(),
            requests=0,
            rows_claimed=len(deliveries),
        )
        bodies = [(delivery.body, delivery.received_at) for delivery in deliveries]
        return home.landing.land(pull, bodies)


def read_receipt_time(name: str) -> datetime:
    """Return when a delivery was received, from the name of its file."""
    return datetime.strptime(name.partition("-")[0], _RECEIPT).replace(tzinfo=UTC)


def read_landed(home: Home, since: datetime) -> Iterator[ReceivedDelivery]:
    """Yield the landed deliveries from the day of `since` on. Damaged batches are left out."""
    for batch_id in _batches_since(home, since):
        with suppress(DamagedBatch):
            for page, body in home.landing.pages(home.landing.manifest(batch_id)):
                yield ReceivedDelivery(page.received_at or since, body)


def list_receipts(home: Home, since: datetime) -> list[datetime]:
    """Return the sorted times of receipt since the day of `since`, the last of each batch.

    Reads names alone.
    """
    found = [read_receipt_time(name) for state in STATES for name in Inbox(home).names(state)]
    found += [
        datetime.strptime(batch_id.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        for batch_id in _batches_since(home, since)
    ]
    return sorted(at for at in found if at.date() >= since.date())


def _batches_since(home: Home, since: datetime) -> Iterator[str]:
    for day in home.landing.days(since=since.date()):
        for batch_id in home.landing.batch_ids(day=day):
            if parse_feed(batch_id) == "deliveries":
                yield batch_id
