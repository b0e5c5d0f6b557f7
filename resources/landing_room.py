"""The landing folder as a puller uses it: room for a file, a lock for each pull.

A pull under way is locked by its process, and the lock goes with the process: so nobody goes
on with a pull whose process still lives. Nothing else in resources/ reaches into the folder.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from warehouse.journal import Intent, OpenPull
from warehouse.landing import Landing
from warehouse.storage import make_folders


class LandingRoom:
    """What a puller needs of a landing folder beside `Landing` itself."""

    def __init__(self, landing: Landing) -> None:
        self.landing = landing
        self._storage = landing.storage

    def staging(self) -> AbstractContextManager[Path]:
        """Lend a path on the disk of the landing, removed at the end."""
        return self._storage.staging()

    def is_open(self, intent: Intent) -> bool:
        """Whether the journal has this pull."""
        return self._storage.exists(f"journal/{intent.pull_id}/pull.json")

    def begin(self, intent: Intent) -> OpenPull:
        return self.landing.journal.begin(intent)

    @contextmanager
    def holding(self, pull_id: str) -> Iterator[bool]:
        """Hold a pull against other processes and threads; yields whether it could be had."""
        path = self._storage.path(f"journal/{pull_id}.lock")
        make_folders(path.parent)
        with path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if not _is_at(lock.fileno(), path):
                # Its last holder has just removed it, and with it the pull.
                yield False
                return
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
