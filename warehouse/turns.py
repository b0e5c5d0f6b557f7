"""Taking turns at a home: OS locks that say who holds them, and go with their process.

Belongs here: the lock, the wait for it, what is said of its holder. Does not: what is done in a
turn. A lock is a file that is never removed while it is held; what it says is for people alone.
"""

import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final

import msgspec

from warehouse.errors import TurnTaken

WAIT_S: Final = 1800.0
_POLL_S: Final = 0.05
_SILENT_S: Final = 1.0
"""Most turns are over by then: a shorter wait is not worth a line."""

log = logging.getLogger(__name__)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Which program has a turn, and since when."""

    program: str
    pid: int
    since: datetime

    def __str__(self) -> str:
        return f"`{self.program}` (pid {self.pid}, since {self.since:%Y-%m-%d %H:%M:%S} UTC)"


@contextmanager
def turn(path: Path, what: str, *, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold a lock; yields whether it had to be waited for. Any signal ends the wait.

    `what` says what the turn is for, as "to merge". A wait of over a second is logged as a warning
    that names the holder, which a command shows on standard error.

    Raises:
        TurnTaken: another process still holds it after `wait_s` seconds; 0 does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # A hand or a repair of the disk made it, and nobody holds that.
        shutil.rmtree(path)
    with path.open("a+b") as lock:
        waited = _acquire(lock, path, what, wait_s)
        _sign(lock)
        yield waited


def _acquire(lock: IO[bytes], path: Path, what: str, wait_s: float) -> bool:
    began, said, waited = monotonic(), False, False
    while not try_lock(lock):
        waited, so_far = True, monotonic() - began
        if so_far >= wait_s:
            raise TurnTaken(
                f"{holder_text(path)} is at work on this home, and its turn {what} was not over "
                f"after {wait_s:g} s. Nothing was done. Run the command again when it has ended; "
                "ALMANAC_WAIT_S says how long to wait."
            )
        if not said and so_far >= _SILENT_S:
            log.warning("Waiting for its turn %s: %s is at work.", what, holder_text(path))
            said = True
        sleep(_POLL_S)
    return waited


def try_lock(lock: IO[bytes], *, shared: bool = False) -> bool:
    """Lock an open file, without waiting; returns whether it could be had."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder_text(path: Path) -> str:
    """Return who holds a lock, in words."""
    found = holder(path)
    return "another process" if found is None else str(found)


def holder(path: Path) -> Holder | None:
    """Return who last signed a lock; None where nobody did, or it is just being signed."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def is_held(path: Path) -> bool:
    """Whether a living process holds a lock."""
    try:
        with path.open("rb") as lock:
            return not try_lock(lock, shared=True)
    except FileNotFoundError:
        return False


def me() -> Holder:
    """Return what this process says of itself."""
    started = Path(sys.argv[0])
    name = started.parent.name if started.stem == "__main__" else started.stem
    program = " ".join([name or "python", *sys.argv[1:2]])
    return Holder(program=program, pid=os.getpid(), since=datetime.now(UTC).replace(microsecond=0))


def _sign(lock: IO[bytes]) -> None:
    lock.truncate(0)
    lock.write(msgspec.json.encode(me()))
    lock.flush()
