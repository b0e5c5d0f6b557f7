"""Processes that land deliveries and merge them, and are killed with SIGKILL between two steps.

Run as a program, it forks for each line that it reads. A step is each change on disk, and each call
that records the progress of landing. Belongs here: the kill. Does not: what must hold after it.
"""

import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from resources.inbox import deliveries
from resources.inbox.progress import ProgressFile
from tests.crashes.killed_home import step_at_every_change
from warehouse.history import merge as merging
from warehouse.home import Home

LANDED_AT = datetime(2026, 3, 5, tzinfo=UTC)
RECORDING = ("set_range", "set_landed", "mark_replayed")


class LandOrder(msgspec.Struct, kw_only=True):
    """The home, and at which step to kill; without a step it runs to its end."""

    root: str
    step: int | None = None
    at_once: int = deliveries.AT_ONCE
    merging: bool = False


class LandDeath(msgspec.Struct, kw_only=True):
    """How a process ended; `steps` is how many it took, if it ran to its end."""

    code: int
    steps: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class _Steps:
    def __init__(self, kill_at: int | None) -> None:
        self.count = 0
        self._kill_at = kill_at

    def step(self, name: str) -> None:
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def stepping(method: Callable[..., Any], step: Callable[[str], None]) -> Callable[..., Any]:
    """Return a method with a step before and after it."""

    def called(*args: Any, **given: Any) -> Any:
        step("before")
        done = method(*args, **given)
        step("after")
        return done

    return called


def work(order: LandOrder) -> int:
    steps = _Steps(order.step)
    home = Home(Path(order.root))
    step_at_every_change(steps.step)
    for name in RECORDING:
        setattr(ProgressFile, name, stepping(getattr(ProgressFile, name), steps.step))
    deliveries.AT_ONCE = order.at_once  # type: ignore[misc]
    deliveries.land_deliveries(home, lambda: LANDED_AT)
    if order.merging:
        merging.merge(home, step=steps.step)
    return steps.count


def carry_out(order: LandOrder) -> LandDeath:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.write(write_end, str(work(order)).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as steps:
        taken = steps.read()
    _, status = os.waitpid(child, 0)
    return LandDeath(code=os.waitstatus_to_exitcode(status), steps=int(taken or 0))


def main() -> None:
    for line in sys.stdin:
        death = carry_out(msgspec.json.decode(line, type=LandOrder))
        sys.stdout.write(msgspec.json.encode(death).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
