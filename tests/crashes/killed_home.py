"""Processes that land, merge or replay, and are killed with SIGKILL, or find the disk full.

Run as a program, it forks for each line that it reads: a new process costs half a second, a fork
nothing. A process records its current phase in a file that is synced to disk.
"""

import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from tests.crashes.pulls import land_again, landing_of
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.history.merge import merge, replay
from warehouse.home import Home

Step = Callable[[str], None]
_POLL_S = 0.000_2


class Order(msgspec.Struct, kw_only=True):
    """The work on a home, and where to kill it: at the `nth` time of a point, or at a random
    moment up to `within_s` after the start of a phase. Without either it ends normally."""

    root: str
    work: str
    """merge, replay or land."""
    landing_from: str = ""
    point: str = ""
    nth: int = 1
    phase: str = ""
    within_s: float = 0.0
    seed: int = 0
    file_bytes: int = 0
    """The size that no file can exceed, as on a full disk; 0 is no limit."""


class Death(msgspec.Struct, kw_only=True):
    """How a process ended. `phase` and `point` are what it had recorded on disk."""

    code: int
    phase: str
    point: str
    points: dict[str, int]
    """How often each point was reached, if the process ended normally."""
    seconds: dict[str, float]
    """The durations of its phases."""
    error: str = ""
    """The message of the error that ended it."""

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class _Witness:
    """Records on disk where a process is, and kills it at the ordered point."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.storage = Storage(Path(order.root).with_suffix(".witness"))
        self.points: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
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

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.note("phase", name)
        began = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
        self.note("phase", "")


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
    witness = _Witness(order)
    home = Home(Path(order.root))
    step_at_every_change(witness.step)
    if order.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, resource.RLIM_INFINITY))
    error = ""
    try:
        if order.work == "land":
            _land(home, order, witness)
        else:
            _merge(home, order, witness)
    except (OSError, duckdb.Error, WarehouseError) as failure:
        error = str(failure)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report = msgspec.json.encode([witness.points, witness.seconds, error])
    witness.note("ended", report.decode())


def _land(home: Home, order: Order, witness: _Witness) -> None:
    source, target = landing_of(Path(order.landing_from)), home.landing
    target.storage = _SteppingStorage(target.storage.root, witness.step)
    for batch_id in source.batch_ids():
        with witness.phase("land"):
            land_again(source, target, [batch_id])


def _merge(home: Home, order: Order, witness: _Witness) -> None:
    """Merge, in the phases `fold` and, from the check on, `publish`."""
    with ExitStack() as phase:

        def step(name: str) -> None:
            if name in ("merge:locked", "merge:checked"):
                phase.close()
                phase.enter_context(witness.phase("fold" if name == "merge:locked" else "publish"))
            witness.step(name)

        (replay if order.work == "replay" else merge)(home, step=step)


def wait_and_kill(child: int, order: Order, storage: Storage) -> int:
    """Wait for a process to end, or for its phase to begin, and kill it a little later."""
    if order.phase:
        delay_s = random.Random(order.seed).uniform(0, order.within_s)
        while not _ended(child) and _read(storage, "phase") != order.phase:
            time.sleep(_POLL_S)
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _ended(child: int) -> bool:
    """Whether a process has ended; it is not reaped, so its pid is not reused."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read(storage: Storage, name: str) -> str:
    try:
        return storage.read(name).decode()
    except FileNotFoundError:
        return ""


def carry_out(order: Order) -> Death:
    storage = Storage(Path(order.root).with_suffix(".witness"))
    for name in ("phase", "point", "ended"):
        storage.remove(name)
    child = os.fork()
    if child == 0:
        work_until_killed(order)
        os._exit(0)
    code = wait_and_kill(child, order, storage)
    points, seconds, error = msgspec.json.decode(_read(storage, "ended") or '[{},{},""]')
    return Death(
        code=code,
        phase=_read(storage, "phase"),
        point=_read(storage, "point"),
        points=points,
        seconds=seconds,
        error=error,
    )


def main() -> None:
    for line in sys.stdin:
        death = carry_out(msgspec.json.decode(line, type=Order))
        sys.stdout.write(msgspec.json.encode(death).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
