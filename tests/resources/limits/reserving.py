"""Processes that take tokens in a tight loop, and are killed with SIGKILL and replaced.

    python -m tests.resources.limits.reserving '{"ledger": …, "notes": …, "rate_per_s": …, …}'

Each child is a fork: a new process takes a tenth of a second. It notes the instant of each token;
shared memory shows whether a killed child had the ledger's lock. If a part of the quota is
reserved, the last children end when they reach it. Prints an `Account` as JSON.
"""

import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from resources.errors import Defer
from resources.limits.allowance import Pace, Share
from resources.limits.ledger import Ledger, monotonic_ns
from resources.limits.limiter import SharedLimiter

_NOTE = struct.Struct("<q")
_OUTSIDE, _HOLDS_THE_LOCK = 0, 1
_AIMED_FOR_S = 0.005


class Order(msgspec.Struct):
    """`notes` is a file for the instants. Every second kill is aimed at the child with the lock.

    There are as many kills as it takes for `kills` of them, of which `hits` met a lock held.
    """

    ledger: str
    notes: str
    rate_per_s: float
    burst: int
    processes: int
    kills: int = 0
    hits: int = 0
    floor: int = 0
    seed: int = 1
    apart_s: float = 0.004


class Account(msgspec.Struct):
    """The result. `hits` were killed while they had the lock.

    The ledger is checked after each kill: `damaged` found no good record, `short` fewer charges
    than notes.
    """

    kills: int = 0
    hits: int = 0
    ledger_checks: int = 0
    damaged: int = 0
    short: int = 0


class Flock:
    """One process's `fcntl.flock`, which marks in shared memory that the lock is held."""

    def __init__(self, marks: mmap, place: int) -> None:
        self._real: Callable[[Any, int], None] = fcntl.flock
        self._marks = marks
        self._place = place

    def __call__(self, file: Any, how: int) -> None:
        if how == fcntl.LOCK_UN:
            self._marks[self._place] = _OUTSIDE
        self._real(file, how)
        if how != fcntl.LOCK_UN:
            self._marks[self._place] = _HOLDS_THE_LOCK


class Nursery:
    """The children of one run, each with its own place."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.limiter = limiter_of(order)
        self.allowed_before = self.limiter.ledger.peek().allowed
        self.marks = mmap(-1, order.processes)
        self.notes = os.open(order.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.children = [self.born(place) for place in range(order.processes)]

    def born(self, place: int) -> int:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            fcntl.flock = Flock(self.marks, place)
            take_tokens(limiter_of(self.order), self.notes, parent)
            os._exit(0)
        return child

    def kill(self, place: int) -> bool:
        """Kill the child of a place, and return whether it held the lock."""
        os.kill(self.children[place], signal.SIGKILL)
        os.waitpid(self.children[place], 0)
        held = self.marks[place] == _HOLDS_THE_LOCK
        self.marks[place] = _OUTSIDE
        return held

    def check_ledger(self, account: Account) -> None:
        noted = os.fstat(self.notes).st_size // _NOTE.size
        seen = self.limiter.ledger.peek()
        account.ledger_checks += 1
        account.damaged += seen.allowed != self.allowed_before
        account.short += seen.used < noted


def limiter_of(order: Order) -> SharedLimiter:
    ledger = Ledger(Path(order.ledger), Pace(order.rate_per_s, order.burst))
    share = Share("backfill", floor=order.floor)
    return SharedLimiter(ledger, share, clock=lambda: datetime.now(UTC))


def take_tokens(limiter: SharedLimiter, notes: int, parent: int) -> None:
    while os.getppid() == parent:
        try:
            limiter.acquire()
        except Defer:
            return
        os.write(notes, _NOTE.pack(monotonic_ns()))


def instants(notes: Path) -> list[int]:
    """Return when each token was noted, in nanoseconds, in order."""
    return sorted(instant for (instant,) in _NOTE.iter_unpack(notes.read_bytes()))


def run(order: Order) -> Account:
    random, account = Random(order.seed), Account()
    nursery = Nursery(order)
    while account.kills < order.kills or account.hits < order.hits:
        place = random.randrange(order.processes)
        time.sleep(random.uniform(0, order.apart_s))
        until = time.monotonic() + (_AIMED_FOR_S if account.kills % 2 else 0)
        while nursery.marks[place] == _OUTSIDE and time.monotonic() < until:
            pass
        account.hits += nursery.kill(place)
        account.kills += 1
        nursery.check_ledger(account)
        nursery.children[place] = nursery.born(place)
    for place in range(order.processes):
        if order.floor:
            os.waitpid(nursery.children[place], 0)
        else:
            nursery.kill(place)
    nursery.check_ledger(account)
    with suppress(Defer):
        nursery.limiter.acquire()
    return account


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    sys.stdout.write(msgspec.json.encode(run(order)).decode())


if __name__ == "__main__":
    main()
