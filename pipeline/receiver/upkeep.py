"""Retention beside receiving: the receiver clears the old bodies of landed deliveries itself.

It is the only writer of the inbox, so nobody else may while it runs; `almanac prune` does the same
when it does not. Belongs here: when bodies are cleared. Does not: which (resources/inbox).
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pipeline.receiver.group_commit import GroupCommit
from resources.inbox.inbox_file import InboxWriter
from resources.inbox.progress import read_progress
from warehouse.errors import InboxUnusable
from warehouse.home import Home

EVERY_S: Final = 3_600.0
_PAUSE_S: Final = 0.05
"""Between two steps, so that deliveries have most of the disk."""

log = logging.getLogger(__name__)


class Upkeep:
    """Clears bodies in steps of some milliseconds, in the thread that commits.

    `clock` returns the service's time; `keep` is how long the body of a landed delivery stays.
    """

    def __init__(
        self,
        home: Home,
        writer: InboxWriter,
        clock: Callable[[], datetime],
        *,
        keep: timedelta,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._home = home
        self._writer = writer
        self._clock = clock
        self._keep = keep
        self._pause_s = pause_s

    async def run(self, commits: GroupCommit) -> None:
        """Clear at the start and then every hour, until this task is cancelled."""
        while True:
            await self.clear(commits)
            await asyncio.sleep(EVERY_S)

    async def clear(self, commits: GroupCommit) -> int:
        """Clear all old bodies; return how many. A failure is logged: the next hour does it."""
        cleared = 0
        try:
            while step := await commits.call(self._clear_some):
                cleared += step
                await asyncio.sleep(self._pause_s)
        # Whatever it is, deliveries are received meanwhile.
        except Exception as error:
            unforeseen = not isinstance(error, sqlite3.Error | OSError | InboxUnusable)
            message = "old bodies of deliveries could not be cleared: %s"
            log.warning(message, error, exc_info=unforeseen)
        return cleared

    def _clear_some(self) -> int:
        landed_to = read_progress(self._home).landed_to
        return self._writer.clear_bodies(before=self._clock() - self._keep, landed_to=landed_to)
