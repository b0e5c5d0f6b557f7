"""Dagster's programs that are started on a home, and orphans that a killed starter left.

Each runs under `attached`, which ends it with the process that started it, and holds a lock with
its process id while it lives. The lock identifies an orphan: its id can't be another program's.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final

from pipeline.console import fail, warnings
from pipeline.ui.attached import ATTACHED
from pipeline.ui.logs import ProgramLog
from pipeline.ui.names import CODE_SERVER, DAEMON, ProgramWords, lock_of
from warehouse.errors import LockHeld
from warehouse.files.locks import holder, holder_text, is_held
from warehouse.home import Home

_ORPHANS_S: Final = 10.0
"""An orphan ends by itself within some seconds; after this time it is killed."""
_LAST_LINES_S: Final = 0.5
_LONGEST_LINE: Final = 1_000_000


class Program:
    """One of Dagster's programs, with all processes that it starts, and its log."""

    def __init__(self, name: str, home: Home, words: ProgramWords, log: ProgramLog) -> None:
        self.name = name
        self.log = log
        self._home = home
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._groups: set[int] = set()
        """Groups of processes of it that may still live, earlier ones too: a run outlives it."""

    def command(self) -> list[str]:
        """Return what is executed; the environment is extended by `env`, since it is not read."""
        folder = self._home.instance_folder.resolve()
        return [
            *("env", f"DAGSTER_HOME={folder}", f"ALMANAC_HOME={self._home.root.resolve()}"),
            # Each arena of the allocator keeps memory for itself, and each thread has one else.
            *("MALLOC_ARENA_MAX=2", "PYTHONUNBUFFERED=1"),
            # Their logs are UTF-8, whatever the locale.
            *("PYTHONUTF8=1", "PYTHONIOENCODING=utf-8:backslashreplace"),
            *(sys.executable, "-P", "-m", ATTACHED),
            *(str(lock_of(self._home, self.name)), self.name, self._words.text()),
        ]

    def start(self) -> None:
        """Start it, again if it ended."""
        # In a session of its own, so that Ctrl-C reaches it once, from here. Its input is an empty
        # pipe that closes when this process ends, however that happens.
        self._process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._groups.add(self._process.pid)
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=_copy, args=(self._process.stdout, self.log), name=self.name, daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it was started and has ended."""
        if self._process is None or self._process.poll() is None:
            return False
        self._groups = {group for group in self._groups if _lives(group)}
        return True

    @property
    def is_gone(self) -> bool:
        """Whether none of its processes is left."""
        return (self._process is None or self.ended) and not self._groups

    def how_it_ended(self) -> str:
        """Return how it ended, with the last line that it printed."""
        assert self._process is not None
        if self._reader is not None:
            self._reader.join(_LAST_LINES_S)
        code = self._process.returncode
        how = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        line = self.log.last_line or "it printed nothing"
        return f"{self.name} {how}: {line} (full log in {self.log.path})"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        if self._process is not None:
            self._process.poll()
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def wait(self, until: float) -> bool:
        """Wait until none of its processes is left, or until an instant of `monotonic`.

        A poll is in a session of its own and ends after its starter, so its part of the output is
        waited for, too: that is open for as long as a process has it.
        """
        while not self.is_gone:
            if monotonic() > until:
                return False
            sleep(0.05)
        if self._reader is None:
            return True
        self._reader.join(max(_LAST_LINES_S, until - monotonic()))
        return not self._reader.is_alive()


def _lives(group: int) -> bool:
    """Whether a group of processes has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _copy(output: IO[bytes], log: ProgramLog) -> None:
    """Copy what a program prints into its log until it ends; it never waits for its reader."""
    is_reported = False
    with output:
        while line := output.readline(_LONGEST_LINE):
            try:
                log.write(line)
            except OSError as error:
                if not is_reported:
                    is_reported = True
                    warnings.print(
                        f"almanac: {log.path} can't be written ({error.strerror}): lines of this "
                        "log are lost until it can be. Nothing else is affected.",
                        soft_wrap=True,
                    )


def fail_if_ended(programs: list[Program]) -> None:
    for program in programs:
        if program.ended:
            fail(program.how_it_ended())


def end_orphans(home: Home) -> None:
    """Wait until the programs of a killed starter have ended; kill those that do not.

    The caller must hold the lock of `almanac ui`, so that any living program is an orphan.

    Raises:
        LockHeld: a program lives that may not be an orphan of this machine, or can't be killed.
    """
    for name in (DAEMON, CODE_SERVER):
        lock = lock_of(home, name)
        if _free_within(_ORPHANS_S, lock):
            continue
        left = holder(lock)
        if left is not None and left.is_the_process_here:
            warnings.print(
                f"Stopping {name} (pid {left.pid}), which an earlier almanac ui left running."
            )
            with suppress(ProcessLookupError, PermissionError):
                os.kill(left.pid, signal.SIGKILL)
            if _free_within(_ORPHANS_S, lock):
                continue
        raise LockHeld(
            f"{name} of another `almanac ui` still runs on this home: {holder_text(lock)} holds "
            f"{lock}. It can't be stopped from here: it runs on another host, in another "
            "container, or as another user. Nothing was started. Stop it there, then start this "
            "one again."
        )


def _free_within(seconds: float, lock: Path) -> bool:
    give_up_at = monotonic() + seconds
    while is_held(lock):
        if monotonic() > give_up_at:
            return False
        sleep(0.1)
    return True
