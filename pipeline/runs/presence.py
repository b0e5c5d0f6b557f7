"""The runs of Dagster that have a living process: each process that executes runs holds a lock.

`dagster/running/<process>.lock` lists the runs of one process, one on each line, and is locked
until the process ends, however it ends. Belongs here: holding and reading these locks. Does not:
Dagster's own records (store), dead runs (dead_runs). This module does not import Dagster.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from warehouse.files.locks import try_lock
from warehouse.home import Home

FOLDER: Final = "running"
_held: Final[dict[Path, IO[bytes]]] = {}
"""The locks of this process, by home. They stay open, since a run still writes after its steps."""


@dataclass(frozen=True, slots=True)
class Presence:
    """The runs that processes announced: of living processes, and of dead ones."""

    alive: frozenset[str]
    dead: frozenset[str]


def announce(home: Home, run_id: str) -> None:
    """Record that this process executes a run, for as long as the process lives."""
    folder = (home.dagster / FOLDER).resolve()
    lock = _held.get(folder)
    if lock is None or not Path(lock.name).exists():
        lock = _held[folder] = _new_lock(folder)
    lock.write(f"{run_id}\n".encode())
    lock.flush()


def presence(home: Home) -> Presence:
    """Return the runs that have a living process, and those that had one."""
    alive: set[str] = set()
    dead: set[str] = set()
    for path, lock in _locks(home):
        (dead if try_lock(lock, shared=True) else alive).update(_runs_in(path))
    return Presence(frozenset(alive), frozenset(dead))


def forget(home: Home, in_progress: frozenset[str]) -> None:
    """Remove the locks of ended processes with no run in progress."""
    for path, lock in _locks(home):
        if try_lock(lock) and not in_progress.intersection(_runs_in(path)):
            path.unlink(missing_ok=True)


def _new_lock(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f"{os.getpid()}-{uuid4().hex}.lock"
        lock = path.open("ab")
        # Between the two lines another process may remove it as the lock of a dead one.
        if try_lock(lock) and path.exists():
            return lock
        lock.close()


def _locks(home: Home) -> Iterator[tuple[Path, IO[bytes]]]:
    for path in sorted((home.dagster / FOLDER).glob("*.lock")):
        try:
            lock = path.open("rb")
        except FileNotFoundError:
            continue
        with lock:
            yield path, lock


def _runs_in(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split()
    except FileNotFoundError:
        return []
