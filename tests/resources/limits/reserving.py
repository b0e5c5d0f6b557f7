"""Processes that take tokens of one ledger in a loop, some of which are killed and replaced.

    python -m tests.resources.limits.reserving LEDGER NOTES RATE BURST PROCESSES KILLS RESERVE

Each child is a fork, and notes the time of each token in NOTES. The last children end when they
reach the reserve, or are killed if there is none.
"""

import os
import signal
import struct
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from resources.errors import Defer
from resources.limits.ledger import Ledger, Pace, monotonic_ns
from resources.limits.limiter import Limiter

NOTE = struct.Struct("<q")


def take_tokens(limiter: Limiter, notes: int) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            limiter.acquire()
        except Defer:
            return
        os.write(notes, NOTE.pack(monotonic_ns()))


def main() -> None:
    ledger, path, rate, *counts = sys.argv[1:]
    burst, processes, kills, reserve = map(int, counts)
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    limiter = Limiter(
        Ledger(Path(ledger)),
        lambda state: Pace(float(rate), burst),
        reserve=lambda state: reserve,
        clock=lambda: datetime.now(UTC),
    )

    def born() -> int:
        child = os.fork()
        if child == 0:
            take_tokens(limiter, notes)
            os._exit(0)
        return child

    def kill(child: int) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    random, children = Random(1), [born() for _ in range(processes)]
    for _ in range(kills):
        time.sleep(random.uniform(0, 0.01))
        place = random.randrange(processes)
        kill(children[place])
        children[place] = born()
    for child in children:
        if reserve:
            os.waitpid(child, 0)
        else:
            kill(child)


if __name__ == "__main__":
    main()
