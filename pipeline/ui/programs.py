"""Dagster's programs that `almanac ui` starts on a home, and orphans that a killed one left.

Each runs under `attached`, which ends it with the process that started it, and holds a lock with
its process id while it lives. The lock identifies an orphan: its id can't be another program's.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import httpx

from pipeline.console import fail, warnings
from pipeline.ui.attached import ATTACHED, WEBSERVER
from warehouse.errors import LockHeld
from warehouse.files.locks import holder, holder_text, is_held
from warehouse.home import Home

DAEMON: Final = "dagster-daemon"
_START_S: Final = 90.0
_STOP_S: Final = 30.0
_ORPHANS_S: Final = 10.0
"""An orphan ends by itself within a second or two; after this time it is killed."""


class Program:
    """One of Dagster's programs, with its output in a file of the home."""

    def __init__(self, name: str, home: Home, workspace: Path, *words: str) -> None:
        self.name = name
        self.log = home.dagster / f"{name}.log"
        self._home = home
        self._workspace = workspace
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self._home.instance_folder.resolve()
        lock = lock_of(self._home, self.name)
        # `env` extends the environment, so that this program does not have to read it.
        command = [
            *("env", f"DAGSTER_HOME={folder}", f"ALMANAC_HOME={self._home.root.resolve()}"),
            *(sys.executable, "-m", ATTACHED, str(lock), self.name),
            *(*self._words, "-w", str(self._workspace.resolve())),
        ]
        with self.log.open("wb") as log:
            # In a session of its own, so that Ctrl-C reaches it once, from here. Its input is an
            # empty pipe that closes when this process ends, however that happens.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.PIPE, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def interrupt(self) -> None:
        if self._process is not None and not self.ended:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def lock_of(home: Home, name: str) -> Path:
    """Return the path of the lock that a program of a home holds while it lives."""
    return home.dagster.resolve() / f"{name}.lock"


def address_of(host: str, port: int) -> str:
    """Return the address of the pages; an IPv6 host is in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def end_orphans(home: Home) -> None:
    """Wait until the programs of a killed `almanac ui` have ended; kill those that do not.

    The caller must hold the lock of `almanac ui`, so that any living program is an orphan.

    Raises:
        LockHeld: a program lives that may not be an orphan of this machine, or can't be killed.
    """
    for name in (WEBSERVER, DAEMON):
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


def wait_until_answering(
    address: str, programs: list[Program], stopped: Callable[[float], bool]
) -> None:
    """Wait until the pages answer, or until `stopped`, which waits some seconds, returns true."""
    give_up_at = monotonic() + _START_S
    while not stopped(0.2):
        fail_if_ended(programs)
        try:
            httpx.get(f"{address}/server_info", timeout=5, trust_env=False).raise_for_status()
        except httpx.HTTPError:
            if monotonic() > give_up_at:
                fail(f"Dagster did not respond on {address} within {_START_S:g} s")
        else:
            return


def fail_if_ended(programs: list[Program]) -> None:
    for program in programs:
        if program.ended:
            lines = program.log.read_text("utf-8", "replace").strip().splitlines()
            last_line = lines[-1].strip() if lines else "it printed nothing"
            fail(f"{program.name} ended: {last_line} (full log in {program.log})")


def _free_within(seconds: float, lock: Path) -> bool:
    give_up_at = monotonic() + seconds
    while is_held(lock):
        if monotonic() > give_up_at:
            return False
        sleep(0.1)
    return True
