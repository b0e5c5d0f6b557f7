"""Server processes: started on a core of their own, measured, and always stopped."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ServerFailedError(Exception):
    """A server of the run did not start or ended by itself."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the server and that of the load generator; the same one if there is only one."""

    server: int
    load: int

    @classmethod
    def of_machine(cls) -> "Cores":
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[-1])


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    port: int
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the server printed when it was ready, such as a key."""

    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * _PAGE_BYTES

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def own_server(core: int, *arguments: str) -> Iterator[Running]:
    """Run `python -m bench.server.serve` with arguments; it prints its port when it is ready."""
    with _pinned(
        [sys.executable, "-m", "bench.server.serve", *arguments],
        core,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ServerFailedError(f"{' '.join(arguments)} ended with {process.wait()}")
        details = json.loads(line)
        yield Running(process.pid, details["port"], details)


@contextmanager
def foreign_server(core: int, command: Callable[[int], Sequence[str]]) -> Iterator[Running]:
    """Run a command made for a free port, and wait until the port is listened on."""
    port = free_port()
    with _pinned(command(port), core, stderr=subprocess.DEVNULL) as process:
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while not _listening(port):
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise ServerFailedError(f"{command(port)[0]} did not start listening")
            time.sleep(0.05)
        yield Running(process.pid, port)


@contextmanager
def _pinned(
    command: Sequence[str],
    core: int,
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: close its input if it has one, so that it cleans up; else by a signal."""
    if process.stdin is None:
        process.terminate()
    else:
        process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
