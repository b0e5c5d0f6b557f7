"""Starts the process of a poll, and knows whether it is in progress.

Belongs here: the side of the process that starts polls. Does not: the poll (process.py), when one
is started (automation). Dagster is not imported.
"""

import subprocess
import sys
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from pipeline.polling.records import PollRequest

MODULE: Final = "pipeline.polling.process"


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
