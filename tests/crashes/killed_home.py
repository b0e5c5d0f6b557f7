"""Processes that land, merge or rebuild, and are killed with SIGKILL, or find the disk full.

Run as a program, it forks for each line that it reads: a new process costs half a second, a fork
nothing. A process records on disk, synced, at which point it was killed.
"""

import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from almanac.core.errors import WarehouseError
from almanac.core.progress import listening
from tests.crashes.rotting import land_again, landing_of
from warehouse.files.storage import Storage
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home

Step = Callable[[str], None]


class Order(msgspec.Struct, kw_only=True):
    """The work on a home, and where to kill it: at the `nth` time of a point, or at a random
    moment in its first `within_s`. Without either it ends normally."""

    root: str
    work: str
    """merge, rebuild or land."""
    landing_from: str = ""
    point: str = ""
    nth: int = 1
    within_s: float = 0.0
    seed: int = 0
    file_bytes: int = 0
    """The size that no file can exceed, as on a full disk; 0 is no limit."""


class Death(msgspec.Struct, kw_only=True):
    """How a process ended. `point` is where it was killed; the rest is of one that was not."""

    code: int
    point: str
    points: dict[str, int]
    """How often each point was reached."""
    seconds: float
    error: str = ""
    """The message of the error that ended it."""

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class _Witness:
    """Counts the points that a process reaches, and kills it at the ordered one."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.storage = Storage(Path(order.root).with_suffix(".witness"))
        self.points: dict[str, int] = {}
        self.writing = False
        """True while it writes its own files, which are not points."""

    def step(self, name: str) -> None:
        if self.writing:
            return
        self.points[name] = self.points.get(name, 0) + 1
        if name == self.order.point and self.points[name] == self.order.nth:
            self.note("point", name)
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, name: str, text: str) -> None:
        self.writing = True
        self.storage.put(name, text.encode())
        self.writing = False


class _SteppingStorage(Storage):
    """Adds points to landing: before and after each file is put in place."""

    def __init__(self, root: Path, step: Step) -> None:
        super().__init__(root)
        self._step = step

    def adopt(self, staged: Path, name: str) -> None:
        kind = name.partition("/")[0]
        self._step(f"land:{kind}_written")
        super().adopt(staged, name)
        self._step(f"land:{kind}_in_place")


def step_at_every_change(step: Step) -> None:
    """Call `step` before each change on disk that this process makes."""
    changes: list[tuple[Any, str]] = [(os, "fsync"), (shutil, "rmtree"), (Path, "mkdir")]
    changes += [(Path, name) for name in ("rename", "replace", "unlink")]
    for owner, name in changes:
        setattr(owner, name, _stepping(getattr(owner, name), step))


def _stepping(change: Callable[..., Any], step: Step) -> Callable[..., Any]:
    def stepping(*args: Any, **options: Any) -> Any:
        step("disk:next")
        return change(*args, **options)

    return stepping


def work_until_killed(order: Order) -> None:
    witness, home = _Witness(order), Home(Path(order.root))
    step_at_every_change(witness.step)
    if order.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, resource.RLIM_INFINITY))
    error = ""
    try:
        if order.work == "land":
            source, target = landing_of(Path(order.landing_from)), home.landing
            target.storage = _SteppingStorage(target.storage.root, witness.step)
            land_again(source, target, source.batch_ids())
        else:
            with listening(phase=lambda name, *_: witness.step(name)):
                (rebuild if order.work == "rebuild" else merge)(home)
    except (OSError, duckdb.Error, WarehouseError) as failure:
        error = str(failure)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    witness.note("ended", msgspec.json.encode([witness.points, error]).decode())


def _read(storage: Storage, name: str) -> str:
    try:
        return storage.read(name).decode()
    except FileNotFoundError:
        return ""


def carry_out(order: Order) -> Death:
    storage = Storage(Path(order.root).with_suffix(".witness"))
    for name in ("point", "ended"):
        storage.remove(name)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        work_until_killed(order)
        os._exit(0)
    if order.within_s:
        time.sleep(random.Random(order.seed).uniform(0, order.within_s))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    points, error = msgspec.json.decode(_read(storage, "ended") or '[{},""]')
    return Death(
        code=os.waitstatus_to_exitcode(status),
        point=_read(storage, "point"),
        points=points,
        seconds=time.monotonic() - began,
        error=error,
    )


def main() -> None:
    for line in sys.stdin:
        death = carry_out(msgspec.json.decode(line, type=Order))
        sys.stdout.write(msgspec.json.encode(death).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
