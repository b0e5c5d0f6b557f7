"""The allowance of one key on disk, shared by every process of a machine.

One small record, guarded by a lock on its file. A record that is missing, damaged or of another
layout counts as unknown: an empty bucket and no quota. Of a record from another boot, or from a
later time, only the spent requests and the stated pace are used. Code that sends requests uses
`Ledger`. Code that shows the rest of the quota uses `LedgerReader`, which creates and writes
nothing. Does not belong here: the meaning of the numbers (allowance.py).
"""

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Final
from zlib import crc32

from pydantic import SecretStr

from resources.errors import LedgerUnusable
from resources.limits.allowance import Allowance, Pace, of_another_boot, unknown

_LAYOUT: Final = struct.Struct("<4s16sqqqQqqqq3qdqqqq")
_CHECK: Final = struct.Struct("<I")
_MAGIC: Final = b"ALM3"
_SIZE: Final = _LAYOUT.size + _CHECK.size
_SYNC_EVERY_NS: Final = 1_000_000_000
_UNEVEN_NS: Final = 1_000_000_000
"""How far the clocks of two processors may differ."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> bytes:
    """Return the id of this boot of the machine, 16 bytes; zeros if there is none."""
    try:
        return bytes.fromhex(_BOOT.read_text("ascii").strip().replace("-", ""))[:16]
    except (OSError, ValueError):
        return bytes(16)


def monotonic_ns() -> int:
    """Return the nanoseconds since boot, including time asleep if the machine counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock)


def ledger_name(base_url: str, key: SecretStr) -> str:
    """Return the file name: the same for one key at one service, without a secret."""
    text = f"{base_url}\0{key.get_secret_value()}".encode()
    return blake2b(text, digest_size=12, person=b"almanac ledger").hexdigest() + ".ledger"


@dataclass(slots=True)
class Entry:
    """The allowance while its file is locked, the time of the lock, and the pace of the key."""

    state: Allowance
    now_ns: int
    pace: Pace


class Ledger:
    """The file of one key. Shared by threads and processes, and safe across a fork.

    `pace` applies to a key about which nothing is known. `pace_of` returns the pace for the limits
    that the service has stated; None means always `pace`.
    """

    def __init__(
        self,
        path: Path,
        pace: Pace,
        *,
        pace_of: Callable[[Allowance], Pace] | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        boot: Callable[[], bytes] = boot_id,
    ) -> None:
        self.path = path
        self.pace = pace
        self._pace_of = pace_of
        self.now_ns = now_ns
        self._boot = boot()
        self._threads = Lock()
        self._file: int | None = None
        self._process = 0
        self._synced_ns = 0

    def pace_for(self, state: Allowance) -> Pace:
        """Return the pace for what the service has stated."""
        return self.pace if self._pace_of is None else self._pace_of(state)

    @contextmanager
    def locked(self) -> Iterator[Entry]:
        """Lock the file and yield the entry to read and change; it is written at the end.

        Raises:
            LedgerUnusable: the file can't be opened.
            OSError: it can't be locked or written.
        """
        with self._threads:
            file = self._opened()
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                now_ns = self.now_ns()
                state = self._read(file, now_ns)
                entry = Entry(state, now_ns, self.pace_for(state))
                yield entry
                self._write(file, entry)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
            self._sync(file, entry.now_ns)

    def peek(self) -> Allowance:
        """Return the state as it is; nothing is written."""
        with self._threads:
            file = self._opened()
            fcntl.flock(file, fcntl.LOCK_SH)
            try:
                return self._read(file, self.now_ns())
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._threads:
            file, self._file = self._file, None
            if file is not None and self._process == os.getpid():
                os.close(file)

    def _opened(self) -> int:
        # A forked child shares its parent's lock, so it opens the file itself.
        if self._file is None or self._process != os.getpid():
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise LedgerUnusable(
                    f"the limits of the key can't be written in {self.path.parent}: "
                    f"{error.strerror}"
                ) from error
            self._process = os.getpid()
        return self._file

    def _read(self, file: int, now_ns: int) -> Allowance:
        record = os.pread(file, _SIZE, 0)
        if len(record) < _SIZE:
            return unknown(self.pace, now_ns)
        body = record[: _LAYOUT.size]
        (check,) = _CHECK.unpack_from(record, _LAYOUT.size)
        magic, boot, seen, full_at, held, turn, *month = _LAYOUT.unpack(body)
        if magic != _MAGIC or check != crc32(body):
            return unknown(self.pace, now_ns, turn=now_ns)
        allowed, used, resets, excess, daily, polls, backfill, *stated = month
        spent = (daily, polls, backfill)
        found = Allowance(full_at, held, turn, allowed, used, resets, excess, spent, *stated)
        # Without a boot id, or after a snapshot was restored, only the time shows another boot.
        if boot != self._boot or now_ns + _UNEVEN_NS < seen:
            return of_another_boot(found, self.pace_for(found), now_ns)
        return found

    def _write(self, file: int, entry: Entry) -> None:
        state = entry.state
        body = _LAYOUT.pack(
            *(_MAGIC, self._boot, entry.now_ns, state.full_at_ns, state.held_until_ns, state.turn),
            *(state.allowed, state.used, state.resets_at, state.excess, *state.spent),
            *(state.rate_per_s, state.burst, state.sent, state.answered, state.export_at_ns),
        )
        # One write of less than a page: after a kill it is whole or absent.
        os.pwrite(file, body + _CHECK.pack(crc32(body)), 0)

    def _sync(self, file: int, now_ns: int) -> None:
        if now_ns - self._synced_ns >= _SYNC_EVERY_NS:
            self._synced_ns = now_ns
            os.fsync(file)


class LedgerReader(Ledger):
    """Opens the file of a key read-only, so another user can read it."""

    def peek(self) -> Allowance:
        """Return the state as it is.

        Raises:
            LedgerUnusable: there is no such file, or it can't be read.
        """
        try:
            return super().peek()
        finally:
            self.close()

    def _opened(self) -> int:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerUnusable(
                f"the limits of the key can't be read in {self.path.parent}: {error.strerror}"
            ) from error
        self._process = os.getpid()
        return self._file
