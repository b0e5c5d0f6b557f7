"""Lands the deliveries of the inbox: they become batches, one for each day of receipt.

    inbox ─ a range of deliveries ─▶ batches in landing/ ─▶ the range is marked as landed

The end of a range is stored before it is landed, so a crash at any point lands the same batches
again, which changes nothing. Landing reads the body of no delivery; what can't be applied is
rejected and listed by the merge. Belongs here: the way from inbox to landing. Does not: the merge.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate, groupby
from pathlib import Path
from typing import Final

from catalog.contract.plans import PLANS
from resources.inbox.inbox_file import InboxDelivery, InboxReader
from resources.inbox.progress import (
    LandingProgress,
    ProgressFile,
    check_one_inbox,
    inbox_folder,
    read_progress,
)
from resources.request_log import last_usage
from warehouse.errors import HomeRefused, InboxUnusable
from warehouse.files.locks import hold_lock
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope

LOCK_NAME: Final = "landing.lock"
PUSH_PLAN: Final = "elite"
"""The lowest plan with push; what it shows is what a delivery contains."""
AT_ONCE: Final = 5_000
BYTES_AT_ONCE: Final = 32_000_000
"""A range has at most so many deliveries, and so many bytes of bodies."""
REPLAYED_AT_ONCE: Final = 100
"""Dead letters in one batch: as large as they may be, they fit in memory."""


@dataclass(frozen=True, slots=True)
class LandedDeliveries:
    """The batches of one call."""

    manifests: tuple[Manifest, ...] = ()
    deliveries: int = 0


@dataclass(frozen=True, slots=True)
class WaitingDeliveries:
    """The deliveries up to `last_seq` that are not landed, and the dead letters to be replayed.

    The count is of receipts, with new dead letters among them.
    """

    last_seq: int
    last_at: datetime | None
    progress: LandingProgress

    @property
    def count(self) -> int:
        return max(0, self.last_seq - self.progress.landed_to) + self.progress.to_replay


def waiting_deliveries(home: Home) -> WaitingDeliveries:
    """Return what waits in the inbox of a home. Reads one row of each file.

    Raises:
        InboxUnusable: one of the files can't be read, or they do not belong together.
    """
    # In this order: what is received and landed in between must not look like a lost file.
    progress = read_progress(home)
    last_seq, last_at = InboxReader(home).last() or (0, None)
    check_one_inbox(home, progress, last_seq)
    return WaitingDeliveries(last_seq, last_at, progress)


def land_deliveries(home: Home, clock: Callable[[], datetime]) -> LandedDeliveries:
    """Land all deliveries that wait in the inbox of a home, and dead letters to be replayed.

    `clock` is the machine's. Run twice, or by two processes: each delivery is in one batch.

    Raises:
        LockHeld: another process lands them for longer than the home's wait.
        InboxUnusable: a file of the inbox can't be used.
        HomeRefused: the home has no stamp.
        OSError: landing can't be written; what was landed stays, and the rest waits.
    """
    if not inbox_folder(home).exists():
        return LandedDeliveries()
    with (
        hold_lock(_lock(home), "to land deliveries", wait_s=home.wait_s),
        ProgressFile.open(home) as file,
    ):
        try:
            return _land_all(home, file, clock)
        except (OSError, InboxUnusable) as error:
            file.set_failure(str(error), clock())
            raise


def _land_all(home: Home, file: ProgressFile, clock: Callable[[], datetime]) -> LandedDeliveries:
    reader, manifests, count = InboxReader(home), list[Manifest](), 0
    last = reader.last() or (0, None)
    check_one_inbox(home, file.progress(), last[0])
    while (progress := file.progress()).landed_to < last[0]:
        range_to = progress.range_to
        if range_to is None:
            range_to = _range_to(reader, progress.landed_to)
            file.set_range(range_to)
        pending = reader.pending(after=progress.landed_to, to=range_to)
        manifests += _land(home, pending, clock)
        count += len(pending)
        file.set_landed(range_to)
    for seqs in _parts(file.to_replay()):
        letters = [letter for seq in seqs if (letter := reader.by_seq(seq)) is not None]
        manifests += _land(home, letters, clock)
        count += len(letters)
        file.mark_replayed(seqs, clock())
    return LandedDeliveries(tuple(manifests), count)


def _parts(seqs: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(seqs), REPLAYED_AT_ONCE):
        yield seqs[start : start + REPLAYED_AT_ONCE]


def _range_to(reader: InboxReader, landed_to: int) -> int:
    """Return the last delivery of the next range; there is at least one."""
    sizes = reader.sizes(after=landed_to, limit=AT_ONCE)
    so_far = accumulate(size for _, size in sizes)
    fitting = [seq for (seq, _), total in zip(sizes, so_far, strict=True) if total <= BYTES_AT_ONCE]
    return max([sizes[0][0], *fitting])


def _land(
    home: Home, deliveries: Iterable[InboxDelivery], clock: Callable[[], datetime]
) -> list[Manifest]:
    """Land deliveries by their day of receipt; each day must be foldable alone."""
    stamp = home.stamp()
    if stamp is None:
        raise HomeRefused(
            f"{home.root} has an inbox but no home.json. Nothing was landed. `almanac receive` "
            "writes it when it starts, with the source of the settings."
        )
    manifests = []
    by_day = sorted(deliveries, key=lambda delivery: (_day(delivery), delivery.seq))
    for _, group in groupby(by_day, key=_day):
        of_day = list(group)
        observed_at = max(delivery.received_at for delivery in of_day)
        pull = Pull(
            feed="deliveries",
            scope=Scope(),
            plan=_plan(home),
            source=stamp.source,
            observed_at=observed_at,
            # Of a delivery that doesn't say when its content was true.
            content_at=observed_at,
            landed_at=clock(),
            requests=0,
            rows_claimed=len(of_day),
        )
        bodies = [(delivery.body or b"", delivery.received_at) for delivery in of_day]
        manifests.append(home.landing.land(pull, bodies))
    return manifests


def _day(delivery: InboxDelivery) -> date:
    return delivery.received_at.date()


def _plan(home: Home) -> str:
    """Return the plan of a delivery: the account's, if it has push."""
    usage = last_usage(home.state)
    plan = None if usage is None else PLANS.get(usage.plan or "")
    return plan.name if plan is not None and plan.webhooks else PUSH_PLAN


def _lock(home: Home) -> Path:
    return inbox_folder(home) / LOCK_NAME
