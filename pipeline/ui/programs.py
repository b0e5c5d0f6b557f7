"""Dagster's own programs on a home: started together, ended together, on one machine.

They print to the standard error of their starter. No program is restarted: if one exits, all end,
and the supervisor of the command (systemd, a container) decides. On servers, run the programs as
separate services (deploy/).
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import IO, Final

import httpx
import msgspec
import yaml

from almanac.console import fail, show_steps, warnings
from pipeline.runs.place import LOCATION
from warehouse.errors import LockHeld
from warehouse.files.storage import Storage
from warehouse.home import Home

MODULE: Final = "pipeline.definitions"
APPLICATION: Final = Path(__file__).parents[2]
LOCK: Final = "programs.lock"
"""Held by all programs of a home; its content is their process ids."""
_WORKSPACE: Final = "almanac-workspace.yaml"
_SOCKET: Final = "code-server.socket"
_SOCKET_PATH_MAX: Final = 100
"""Linux allows 107 bytes for the path of a socket, macOS 103."""
_START_S: Final = 120.0
_ORPHANS_S: Final = 10.0
"""Programs end within some seconds after their starter was killed."""
_STOP_CLIENTS_S: Final = 3.0
_STOP_S: Final = 8.5

Stopped = Callable[[float], bool]
"""Waits so many seconds, or until a signal; returns whether one came."""


class WebAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the UI, its other names, and whether it can change anything."""

    host: str
    port: int
    path_prefix: str = ""
    known_as: Sequence[str] = ()
    read_only: bool = False

    @property
    def url(self) -> str:
        """The URL of the UI; an IPv6 host is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path_prefix}"

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the UI."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def options(self) -> list[str]:
        """The options of `pipeline.ui.webserver`."""
        return [
            *(f"--host={self.host}", f"--port={self.port}", f"--path-prefix={self.path_prefix}"),
            *(f"--known-as={name}" for name in self.known_as),
            *(["--read-only"] if self.read_only else []),
        ]


def serve_dagster(
    home: Home,
    address: WebAddress | None,
    log_format: str,
    stopped: Stopped,
    announce: Callable[[], None],
) -> None:
    """Run Dagster's programs until a signal; without an address, there is no web server.

    Raises:
        LockHeld: programs of another starter run on this home.
        Exit: a program could not be started or exited; the reason is printed.
    """
    home.dagster.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        lock = held.enter_context(_hold_lock(home))
        prepare(home)
        path = held.enter_context(socket_path(home))
        programs = DagsterPrograms(home, lock, stopped)
        held.callback(programs.stop)
        code_server = ["dagster", *code_server_arguments(path), "--log-format", log_format]
        programs.start("the code server", code_server, lambda: _listens(path))
        files = [word for file in write_workspace(home, path) for word in ("--workspace", file)]
        # Only now: a daemon without a code server would fail an open backfill.
        daemon = ["dagster-daemon", "run", *files, "--log-format", log_format]
        programs.start("dagster-daemon", daemon)
        if address is not None:
            server = ["pipeline.ui.webserver", *address.options, *files]
            programs.start("the web server", server, lambda: _answers(address.url))
        announce()
        programs.watch()


class DagsterPrograms:
    """The running programs of one home, each with all processes that it starts."""

    def __init__(self, home: Home, lock: IO[bytes], stopped: Stopped) -> None:
        self._home, self._lock, self._stopped = home, lock, stopped
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, arguments: Sequence[str], is_ready: Callable[[], bool] | None = None
    ) -> None:
        """Start a program, and wait until it is ready or a signal comes.

        Raises:
            Exit: a program ended, or is not ready in time; the reason is printed.
        """
        folder, root = self._home.instance_folder.resolve(), self._home.root.resolve()
        # In a session of its own, so that Ctrl-C reaches it once, from here. Its input is an empty
        # pipe that closes when this process ends. Logs are UTF-8, whatever the locale.
        command = [
            *("env", f"DAGSTER_HOME={folder}", f"ALMANAC_HOME={root}", "PYTHONUNBUFFERED=1"),
            *("PYTHONUTF8=1", "PYTHONIOENCODING=utf-8:backslashreplace", "MALLOC_ARENA_MAX=2"),
            *(sys.executable, "-P", "-m", "pipeline.ui.attached", *arguments),
        ]
        self._running[name] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            pass_fds=(self._lock.fileno(),),
        )
        self._lock.write(f"{self._running[name].pid} ".encode())
        self._lock.flush()
        give_up_at = monotonic() + _START_S
        with show_steps(f"Starting {name} ..."):
            while is_ready is not None and not is_ready() and not self._stopped(0.2):
                self._fail_if_ended()
                if monotonic() > give_up_at:
                    fail(f"{name} did not respond within {_START_S:g} s")

    def watch(self) -> None:
        """Watch the programs until a signal comes.

        Raises:
            Exit: a program ended; the reason is printed.
        """
        while not self._stopped(0.5):
            self._fail_if_ended()

    def stop(self) -> None:
        """End all programs and their runs in at most ten seconds.

        First the programs that start runs, then the runs, which journal the pulled pages.
        """
        began = monotonic()
        clients, everything = list(self._running)[1:], list(self._running)
        for names, seconds in ((clients, _STOP_CLIENTS_S), (everything, _STOP_S)):
            for name in names:
                self._signal(name, signal.SIGTERM)
            while any(map(self._lives, names)) and monotonic() - began < seconds:
                sleep(0.05)
        for name in filter(self._lives, everything):
            warnings.print(f"almanac: {name} did not end in time and was killed")
            self._signal(name, signal.SIGKILL)
            self._running[name].wait()

    def _lives(self, name: str) -> bool:
        """Whether a process of a program's group lives: a run outlives its code server."""
        self._running[name].poll()
        return self._signal(name, 0)

    def _signal(self, name: str, number: int) -> bool:
        try:
            os.killpg(self._running[name].pid, number)
        except ProcessLookupError:
            return False
        return True

    def _fail_if_ended(self) -> None:
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
                fail(f"{name} ended {how}: its reason is above. The other programs are ended, too.")


@contextmanager
def _hold_lock(home: Home) -> Iterator[IO[bytes]]:
    """Hold the lock that the programs inherit: it is free once the last of them has ended."""
    path = home.dagster / LOCK
    with path.open("a+b") as lock:
        give_up_at = monotonic() + _ORPHANS_S
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if monotonic() > give_up_at:
                pids = path.read_text().strip()
                raise LockHeld(
                    f"Dagster's programs of another `almanac ui` still run on this home (process "
                    f"ids {pids}). Nothing was started. End them, then start this one again."
                )
            sleep(0.1)
        lock.truncate(0)
        yield lock


def prepare(home: Home) -> None:
    """Make the Dagster instance, in a process of its own: Dagster takes much memory.

    Raises:
        Exit: it can't be used; the reason is printed.
    """
    program = [sys.executable, "-P", "-m", "pipeline", "dagster", "prepare"]
    done = subprocess.run(
        ["env", f"ALMANAC_HOME={home.root}", "PYTHONIOENCODING=utf-8:backslashreplace", *program],
        # Standard output is for the address.
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    reason = done.stdout.strip().removeprefix("almanac: ")
    if done.returncode:
        fail(
            reason or f"Dagster was not started: `almanac dagster prepare` ended {done.returncode}"
        )
    if reason:
        warnings.print(reason, soft_wrap=True, markup=False)


def code_server_arguments(path: Path) -> list[str]:
    """Return the arguments of `dagster` for the application's code server at a socket."""
    return [
        *("api", "grpc", "--socket", str(path), "--module-name", MODULE),
        *("--location-name", LOCATION, "--use-python-environment-entry-point"),
        # Otherwise the caller's folder has a say in what is imported.
        *("--working-directory", str(APPLICATION)),
    ]


@contextmanager
def socket_path(home: Home) -> Iterator[Path]:
    """Yield the path of the code server's socket: in the home, or in a short temporary folder."""
    path = home.dagster.resolve() / _SOCKET
    if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
        yield path
        return
    with TemporaryDirectory(prefix="almanac-", dir="/tmp") as folder:
        yield Path(folder) / _SOCKET


def write_workspace(home: Home, path: Path) -> list[str]:
    """Write the workspace file of the home's code server; return the files to load, in order.

    A `workspace.yaml` in the folder of the Dagster instance adds code locations. It is read, never
    written; of two locations with one name Dagster takes the last one.
    """
    server = {"socket": str(path), "location_name": LOCATION}
    text = yaml.safe_dump({"load_from": [{"grpc_server": server}]}, sort_keys=False)
    Storage(home.dagster).put(_WORKSPACE, text.encode())
    others = home.instance_folder.resolve() / "workspace.yaml"
    own = home.dagster.resolve() / _WORKSPACE
    return [str(file) for file in (others, own) if file.exists()]


def _listens(path: Path) -> bool:
    """Whether a server listens at a socket; Dagster's does once it has loaded the definitions."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _answers(url: str) -> bool:
    try:
        httpx.get(f"{url}/server_info", timeout=5, trust_env=False).raise_for_status()
    except httpx.HTTPError:
        return False
    return True
