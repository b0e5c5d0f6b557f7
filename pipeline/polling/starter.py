"""Starts the process of a poll, and keeps it apart from the runs that pull.

Belongs here: the side of the processes that start polls or pull beside them. Does not: the poll
(process.py), when one is started (automation). Dagster is not imported.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Lock
from typing import Final, Protocol

import msgspec

from pipeline.polling.records import PollRecords, PollRequest
from warehouse.files.locks import hold_lock
from warehouse.home import Home

MODULE: Final = "pipeline.polling.process"


def pulling_alone(home: Home) -> AbstractContextManager[bool]:
    """Hold the lock of polls; waits for a poll in progress, and yields whether there was a wait.

    Raises:
        LockHeld: another process still holds the lock after the home's `wait_s`.
    """
    path = PollRecords(home).lock
    return hold_lock(path, "to pull", wait_s=home.wait_s, wait_setting=home.wait_setting)


class PullLock:
    """The lock of polls, held while sessions of this process are open: at most one process pulls.

    Sessions of one process share it; it is released with the last of them.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._threads = Lock()
        self._sessions = 0
        self._held = ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; waits as `pulling_alone` does.

        Raises:
            LockHeld: as there.
        """
        with self._threads:
            if not self._sessions:
                self._held.enter_context(pulling_alone(self._home))
            self._sessions += 1
        try:
            yield
        finally:
            with self._threads:
                self._sessions -= 1
                if not self._sessions:
                    self._held.close()


class Starter(Protocol):
    """Starts polls, one at a time."""

    def start(self, request: PollRequest) -> None:
        """Start a poll."""

    def is_running(self, *, wait_s: float = 0.0) -> bool:
        """Whether the poll that was started is in progress, after at most `wait_s` seconds."""


class PollProcess:
    """Starts polls in processes of their own. They end with this one."""

    def __init__(self, *words: str) -> None:
        """`words` replace the command."""
        self._words = words or (sys.executable, "-m", MODULE)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, request: PollRequest) -> None:
        """Start a poll; its messages go where those of this process go.

        Raises:
            OSError: it can't be started.
        """
        # In a session of its own, so that Ctrl-C reaches this process alone. The pipe stays open:
        # it closes when this process ends, however that happens, and the poll then ends too.
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # It has ended already; its record says why.
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()

    def is_running(self, *, wait_s: float = 0.0) -> bool:
        if self._process is None:
            return False
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return True
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process = None
        return False
