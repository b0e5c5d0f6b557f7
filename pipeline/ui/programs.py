"""Dagster's own programs on a home: started together, ended together.

Each runs under `attached`, which ends it with the process that started it, and holds a lock with
its process id while it lives. The lock identifies an orphan: its id can't be another program's.
No program is restarted here: if one exits, all end, and the supervisor of the command (systemd, a
container) decides.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final

import httpx
import yaml

from almanac.console import fail, warnings
from pipeline.runs.place import place_of
from pipeline.runs.store import check
from pipeline.ui.alive import faults_of
from pipeline.ui.attached import ATTACHED
from pipeline.ui.logs import ProgramLog
from pipeline.ui.names import (
    CODE_SERVER,
    DAEMON,
    LOCATION,
    MODULE,
    WEBSERVER,
    PagesAddress,
    lock_of,
)
from warehouse.clock import utc_now
from warehouse.errors import LockHeld, RunRecordsBusy, RunRecordsUnusable
from warehouse.files.locks import holder, holder_text, is_held
from warehouse.files.storage import Storage
from warehouse.home import Home

APPLICATION: Final = Path(__file__).parents[2]
_WORKSPACE: Final = "almanac-workspace.yaml"
_PREPARE: Final = "pipeline.ui.prepare"
_START_S: Final = 120.0
_STOP_DAEMON_S: Final = 3.0
_STOP_S: Final = 8.5
_KILLED_S: Final = 1.0
_SILENT_AFTER_S: Final = 600
_ORPHANS_S: Final = 10.0
"""An orphan ends by itself within some seconds; after this time it is killed."""
_LAST_LINES_S: Final = 0.5
_LONGEST_LINE: Final = 1_000_000


class Program:
    """One of Dagster's programs, with all processes that it starts, and its log."""

    def __init__(self, name: str, home: Home, arguments: Sequence[str], log: ProgramLog) -> None:
        """`arguments` begin with what `attached` runs: a console script or a module."""
        self.name = name
        self.log = log
        self._home = home
        self._arguments = arguments
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
            f"DAGSTER_DAEMON_HEARTBEAT_TOLERANCE={_SILENT_AFTER_S}",
            *(sys.executable, "-P", "-m", ATTACHED),
            *(str(lock_of(self._home, self.name)), *self._arguments),
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


def end_orphans(home: Home) -> None:
    """Wait until the programs of a killed starter have ended; kill those that do not.

    The caller must hold the lock of `almanac ui`, so that any living program is an orphan.

    Raises:
        LockHeld: a program lives that may not be an orphan of this machine, or can't be killed.
    """
    for name in (WEBSERVER, DAEMON, CODE_SERVER):
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


Stopped = Callable[[float], bool]
"""Waits so many seconds, or until a signal; returns whether one came."""


class DagsterPrograms:
    """The code server, the daemon and maybe the web server of one home."""

    def __init__(
        self, home: Home, code_server: Program, clients: Sequence[Program], stopped: Stopped
    ) -> None:
        """`clients` are the programs that need the code server, the daemon first."""
        self._home = home
        self._code_server = code_server
        self._clients = clients
        self._programs = [code_server, *clients]
        self._stopped = stopped

    def start(self, socket_path: Path, pages: PagesAddress | None) -> bool:
        """Start all; return whether they answer, or a signal came before.

        The daemon starts once the code server answers: it would fail an open backfill otherwise.

        Raises:
            Exit: a program ended or did not answer; the reason is printed.
        """
        give_up_at = monotonic() + _START_S
        self._code_server.start()
        if not self._wait_until(lambda: _listens(socket_path), "code server", give_up_at):
            return False
        for program in self._clients:
            program.start()
        return self._wait_until(
            lambda: self._daemon_reports() and (pages is None or _answer(pages)),
            "Dagster" if pages is None else f"Dagster on {pages.url}",
            give_up_at,
        )

    def watch(self) -> None:
        """Watch the programs until a signal comes.

        Raises:
            Exit: a program ended; the reason is printed.
        """
        while not self._stopped(0.5):
            self._fail_if_ended()

    def stop(self) -> None:
        """End all programs and what they started: in at most ten seconds."""
        began = monotonic()
        # First what starts runs, then the runs themselves, which journal what they pulled.
        for program in self._clients:
            program.signal(signal.SIGTERM)
        for program in self._clients:
            program.wait(began + _STOP_DAEMON_S)
        for program in self._programs:
            program.signal(signal.SIGTERM)
        for program in self._programs:
            if not program.wait(began + _STOP_S):
                program.log.say(f"{program.name} did not end in time: killed", level="warning")
                program.signal(signal.SIGKILL)
                program.wait(began + _STOP_S + _KILLED_S)

    def _wait_until(self, ready: Callable[[], bool], what: str, give_up_at: float) -> bool:
        while not self._stopped(0.2):
            self._fail_if_ended()
            if ready():
                return True
            if monotonic() > give_up_at:
                fail(f"{what} did not respond within {_START_S:g} s")
        return False

    def _fail_if_ended(self) -> None:
        for program in self._programs:
            if program.ended:
                fail(program.how_it_ended())

    def _daemon_reports(self) -> bool:
        # Another storage than SQLite can only be read with Dagster, which takes seconds to import.
        if place_of(self._home).databases is None:
            return True
        with suppress(RunRecordsBusy):
            return not faults_of(self._home, utc_now())
        return False


def code_server_arguments(socket_path: Path, log_format: str) -> list[str]:
    """Return the arguments of Dagster's code server of the application."""
    return [
        *("dagster", "api", "grpc", "--socket", str(socket_path)),
        *("--module-name", MODULE, "--location-name", LOCATION),
        *("--log-format", log_format),
        # Dagster takes the first folder from the path, which may be that of the application,
        # and the folder of the caller must have no say in what is imported.
        *("--working-directory", str(APPLICATION)),
        "--use-python-environment-entry-point",
    ]


def write_workspace(home: Home, socket_path: Path) -> list[str]:
    """Write the workspace file of the home's code server; return the files to load, in order.

    A `workspace.yaml` in the folder of the Dagster instance adds code locations. It is read, never
    written; of two locations with one name Dagster takes the last one.
    """
    server = {"socket": str(socket_path), "location_name": LOCATION}
    text = yaml.safe_dump({"load_from": [{"grpc_server": server}]}, sort_keys=False)
    Storage(home.dagster).put(_WORKSPACE, text.encode())
    others = home.instance_folder.resolve() / "workspace.yaml"
    own = home.dagster.resolve() / _WORKSPACE
    return [str(path) for path in (others, own) if path.exists()]


def prepare(home: Home) -> None:
    """Make the databases of the instance; damaged ones are named before a process is started.

    Raises:
        Exit: they can't be used; the reason is printed.
    """
    try:
        check(home)
    except RunRecordsUnusable as error:
        fail(str(error))
    command = ["env", f"ALMANAC_HOME={home.root}", sys.executable, "-P", "-m", _PREPARE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        fail(lines[-1] if lines else f"{_PREPARE} ended with code {done.returncode}")


def _listens(path: Path) -> bool:
    """Whether a server listens at a socket; Dagster's does once it has loaded the definitions."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _answer(pages: PagesAddress) -> bool:
    try:
        httpx.get(f"{pages.url}/server_info", timeout=5, trust_env=False).raise_for_status()
    except httpx.HTTPError:
        return False
    return True
