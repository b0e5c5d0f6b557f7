"""Group commit: deliveries that arrive during a commit are stored by the next one, together.

A commit waits for the disk, so a commit for each delivery would limit the receiver to some hundreds
a second. Belongs here: which deliveries are stored together, and the counts of refused requests.
Does not: the file (resources/inbox).
"""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final, TypeVar

from resources.inbox.inbox_file import Arrival, InboxWriter, StoreResult
from warehouse.errors import InboxUnusable

AT_ONCE_MAX: Final = 512
"""Deliveries in one commit; more wait for the next one."""
WAITING_MAX: Final = 8_192
"""Deliveries that wait for a commit; the receiver then asks senders to come back."""
_COUNTS_AFTER_S: Final = 5.0

Result = TypeVar("Result")
WaitingDeliveries = tuple[Arrival, asyncio.Future[StoreResult]]
"""A delivery that waits for its commit, and the answer to its request."""

log = logging.getLogger(__name__)


class NotStored(Exception):
    """A delivery is not on the disk, so it must not be acknowledged."""


class GroupCommit:
    """Stores deliveries through the one writer, in a thread of its own.

    `store` is for the event loop's thread; `run` is a background task of it, which no failure ends.
    While nothing arrives, the log of the file is moved into the file, so that it does not grow from
    burst to burst.
    """

    def __init__(self, writer: InboxWriter, *, at_once: int = AT_ONCE_MAX) -> None:
        self._writer = writer
        self._at_once = at_once
        self._thread = ThreadPoolExecutor(1, "almanac-inbox")
        self._waiting: list[WaitingDeliveries] = []
        self._refused: Counter[str] = Counter()
        self._woken = asyncio.Event()
        self._has_log = True
        self._counted_at = monotonic()
        self._has_failed = False
        self._is_misplaced = False

    async def store(self, arrival: Arrival) -> StoreResult:
        """Return when the delivery is on the disk.

        Raises:
            NotStored: the disk can't be written, or too many deliveries wait.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise NotStored("too many deliveries wait for the disk")
        stored: asyncio.Future[StoreResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, stored))
        self._woken.set()
        return await stored

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed, or the files of the inbox are not in place. Both are tried
        again every few seconds."""
        return self._has_failed or self._is_misplaced or not self._writer.is_in_place()

    def count_refused(self, reason: str) -> None:
        """Count a refused request; counts are stored every few seconds."""
        self._refused[reason] += 1

    async def run(self) -> None:
        """Commit what waits, until this task is cancelled."""
        while True:
            try:
                # Not `wait_for`: in Python 3.11 it may lose the cancellation of a stop.
                async with asyncio.timeout(_COUNTS_AFTER_S):
                    await self._woken.wait()
            except TimeoutError:
                await self._check()
                if not self._is_misplaced:
                    await self._store_counts()
                    await self._checkpoint()
                continue
            self._woken.clear()
            while self._waiting:
                await self._commit()
            if monotonic() - self._counted_at >= _COUNTS_AFTER_S:
                await self._store_counts()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Call a function in the writer's thread, between two commits; it must be short."""
        self._has_log = True
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Store what waits, and the counts; then no call is allowed."""
        while self._waiting:
            await self._commit()
        await self._store_counts()
        self._thread.shutdown()

    async def _commit(self) -> None:
        group, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
        arrivals = [arrival for arrival, _ in group]
        self._has_log = True
        try:
            results: Sequence[StoreResult] = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._writer.store, arrivals
            )
        # Whatever it is, senders wait for an answer, and the next group may do better.
        except Exception as error:
            message = "%d deliveries could not be stored, and are refused: %s"
            log.error(message, len(group), error, exc_info=_is_unforeseen(error))
            self._has_failed = True
            self._refuse(group, str(error))
            return
        except asyncio.CancelledError:
            # Stored or not: it is sent again.
            self._refuse(group, "the receiver stops")
            raise
        self._has_failed = False
        for (_, stored), result in zip(group, results, strict=True):
            # A request whose client has gone is cancelled; its delivery is stored all the same.
            if not stored.done():
                stored.set_result(result)

    def _refuse(self, group: Iterable[WaitingDeliveries], why: str) -> None:
        for _, stored in group:
            self._refused["not stored"] += 1
            if not stored.done():
                stored.set_exception(NotStored(why))

    async def _check(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.check)
        except Exception as error:
            # Tried every few seconds, and logged once.
            if not self._is_misplaced:
                log.error("no delivery can be stored: %s", error, exc_info=_is_unforeseen(error))
            self._is_misplaced = True
        else:
            if self._is_misplaced:
                log.warning("the files of the inbox are in place again: deliveries are stored")
            self._is_misplaced = False

    async def _checkpoint(self) -> None:
        if not self._has_log:
            return
        self._has_log = False
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.checkpoint)
        except Exception as error:
            message = "the log of the inbox could not be moved into its file: %s"
            log.warning(message, error, exc_info=_is_unforeseen(error))

    async def _store_counts(self) -> None:
        self._counted_at = monotonic()
        if not self._refused:
            return
        counts, self._refused = self._refused, Counter()
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._thread, self._writer.count_refusals, counts
            )
        except Exception as error:
            self._refused += counts
            self._has_failed = True
            message = "the counts of refused requests could not be stored: %s"
            log.warning(message, error, exc_info=_is_unforeseen(error))
        else:
            self._has_failed = False


def _is_unforeseen(error: Exception) -> bool:
    return not isinstance(error, sqlite3.Error | OSError | InboxUnusable)
