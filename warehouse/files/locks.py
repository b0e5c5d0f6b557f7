"""Locks of a home: OS locks that record their holder and end with its process.

The file of a lock is never removed while a process holds the lock. Its content names the holder,
for people to read.
"""

import logging
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final

import msgspec

from almanac.core.errors import WarehouseError
from almanac.core.files import try_lock
from almanac.core.timestamps import utc_now

WAIT_S: Final = 1800.0
_POLL_S: Final = 0.05
_TEST_HELD_S: Final = 0.25
"""`is_held` takes the lock for a moment, so every wait is at least this long."""
_SILENT_S: Final = 1.0
"""Most locks are released by then: a shorter wait is not logged."""
log = logging.getLogger(__name__)


@cache
def host() -> str:
    return socket.gethostname()


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Which program holds a lock, and since when."""

    program: str
    pid: int
    since: datetime
    host: str = ""

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host not in ("", host()) else ""
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"`{self.program}` (pid {self.pid}{where}, since {since})"


@contextmanager
def hold_lock(
    path: Path, what: str, *, wait_s: float = WAIT_S, wait_setting: str = ""
) -> Iterator[bool]:
    """Hold a lock; yields whether there was a wait. Any signal ends the wait.

    `what` gives the purpose, as "to merge". A wait of over a second is logged as a warning that
    names the holder; a command shows it on standard error. `wait_setting` names the setting that
    gives `wait_s`, if there is one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # Made by hand or by a disk repair; nobody holds it.
        shutil.rmtree(path)
    with path.open("a+b") as lock:
        waited = _acquire(lock, path, what, wait_s, wait_setting)
        lock.truncate(0)
        lock.write(msgspec.json.encode(describe_process()))
        lock.flush()
        yield waited


def _acquire(lock: IO[bytes], path: Path, what: str, wait_s: float, wait_setting: str) -> bool:
    began, is_reported, waited = monotonic(), False, False
    while not try_lock(lock):
        waited, so_far = True, monotonic() - began
        if so_far >= max(wait_s, _TEST_HELD_S):
            hint = f"; {wait_setting} sets how long to wait" if wait_setting else ""
            raise WarehouseError(
                f"{describe_holder(path)} is using this home, and still held the lock {what} after "
                f"{wait_s:g} s. Nothing was done. Run the command again when it has ended{hint}."
            )
        if not is_reported and so_far >= _SILENT_S:
            log.warning("Waiting for the lock %s: %s holds it.", what, describe_holder(path))
            is_reported = True
        sleep(_POLL_S)
    return waited


def describe_holder(path: Path) -> str:
    found = read_holder(path)
    return "another process" if found is None else str(found)


def read_holder(path: Path) -> Holder | None:
    """Return the last recorded holder of a lock; None if there is none, or it is being written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def is_held(path: Path) -> bool:
    """Whether a live process holds a lock. The test takes a shared lock for a moment."""
    try:
        with path.open("rb") as lock:
            return not try_lock(lock, is_shared=True)
    except FileNotFoundError:
        return False


def describe_process() -> Holder:
    started = Path(sys.argv[0])
    name = started.parent.name if started.stem == "__main__" else started.stem
    program = " ".join([name or "python", *sys.argv[1:2]])
    return Holder(
        program=program,
        pid=os.getpid(),
        since=utc_now().replace(microsecond=0),
        host=host(),
    )
