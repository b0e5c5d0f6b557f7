"""Merging in the receiver's process, for those without Dagster: `almanac receive --merge`.

A thread lands and merges what the inbox holds, soon after it arrives. Belongs here: when it does.
Does not: landing (resources/inbox), the merge (warehouse.history).
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from resources.inbox.deliveries import land_deliveries, waiting_deliveries
from warehouse.errors import WarehouseError
from warehouse.history import merge as merging
from warehouse.home import Home

LOOK_EVERY_S: Final = 30.0
"""Other processes land batches too, so there is a look without a new delivery."""
FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 600.0
LOCK_WAIT_S: Final = 2.0
"""For a home to give to the thread: a stop waits as long, and what is locked is tried again."""
_NICER: Final = 10

log = logging.getLogger(__name__)


class MergeThread:
    """Lands and merges in the background from `start` to `stop`; `wake` says that there is work.

    A failure is logged and tried again after a wait that doubles. Nothing is lost meanwhile:
    deliveries stay in the inbox, and batches in landing.
    """

    def __init__(self, home: Home, clock: Callable[[], datetime]) -> None:
        self._home = home
        self._clock = clock
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="almanac-merge")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Return when the merge in progress has ended; the rest waits in the inbox."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        _yield_to_receipt()
        wait_s, failures = 0.0, 0
        while not self._stopping.wait(wait_s):
            self._woken.clear()
            try:
                self._merge()
            # Whatever it is, deliveries are acknowledged meanwhile, so merging must not end.
            except Exception as error:
                wait_s = min(FIRST_WAIT_S * 2**failures, LONGEST_WAIT_S)
                failures = min(failures + 1, 10)
                unforeseen = not isinstance(error, WarehouseError | OSError)
                message = "not merged: %s. Tried again in %.0f s."
                log.warning(message, error, wait_s, exc_info=unforeseen)
                continue
            wait_s, failures = 0.0, 0
            # The wake of a stop may have been cleared above.
            if not self._stopping.is_set():
                self._woken.wait(LOOK_EVERY_S)

    def _merge(self) -> None:
        if waiting_deliveries(self._home).count:
            land_deliveries(self._home, self._clock)
        if self._home.landing.pending():
            merging.merge(self._home)


def _yield_to_receipt() -> None:
    """Lower the priority of this thread, and of those that DuckDB starts from it.

    A merge can wait for the processor, and a sender can't wait for its answer.
    """
    # Elsewhere a process has one priority for all its threads.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(
                os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICER
            )
