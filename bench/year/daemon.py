"""The memory of the daemon and of its code server over many ticks, on the home of the year.

    python -m bench.year.daemon ROUNDS     the environment names the home

The sensor part of Dagster's daemon runs here as in `almanac daemon`, with the code server as that
starts it, and records real ticks. Its clock is set forward by eleven minutes in each round, so that
every sensor is due; else a year of ticks would take a year. The code server has the machine's
clock. Prints a line of JSON: what was measured after each part of the rounds.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from unittest.mock import patch

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._grpc.client import DagsterGrpcClient
from dagster_shared.error import SerializableErrorInfo

from bench.children import print_figures
from pipeline.home_location import locate_home
from pipeline.runs.store import SCHEDULES, opened
from pipeline.settings import read_settings
from pipeline.ui.logs import ProgramLog
from pipeline.ui.names import CODE_SERVER, socket_path
from pipeline.ui.programs import Program, code_server_arguments, write_workspace
from warehouse.clock import utc_now
from warehouse.home import Home

_STEP_S: Final = 660.0
_PARTS: Final = 10
_START_S: Final = 120.0
_END_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Memory:
    """After so many ticks of all sensors: resident MB of both processes, and what is stored."""

    ticks: int
    seconds: float
    daemon_mb: float
    code_server_mb: float
    kept_ticks: int
    dagster_mb: float


def main() -> None:
    rounds = int(sys.argv[1])
    home = locate_home(read_settings())
    with (
        socket_path(home) as socket,
        _code_server(home, str(socket)) as pid,
        dg.DagsterInstance.get() as instance,
    ):
        measured = list(_memory(home, instance, str(socket), pid, rounds))
    print_figures(memory=[asdict(each) for each in measured])


@contextmanager
def _code_server(home: Home, socket: str) -> Iterator[int]:
    """Run the code server as `almanac daemon` does; yield its process id."""
    log = ProgramLog(home.dagster / f"{CODE_SERVER}.log", log_format="text", now=utc_now)
    server = Program(CODE_SERVER, home, code_server_arguments(Path(socket), "colored"), log)
    server.start()
    try:
        client, give_up_at = DagsterGrpcClient(socket=socket), time.monotonic() + _START_S
        while True:
            try:
                client.ping("")
                break
            except DagsterUserCodeUnreachableError:
                if time.monotonic() > give_up_at or server.ended:
                    raise
                time.sleep(0.2)
        assert server.pid is not None
        yield server.pid
    finally:
        server.signal(signal.SIGTERM)
        server.wait(time.monotonic() + _END_S)


def _memory(
    home: Home, instance: dg.DagsterInstance, socket: str, server: int, rounds: int
) -> Iterator[Memory]:
    """Evaluate the sensors, and yield what was measured after each part of the rounds."""
    target = WorkspaceFileTarget(write_workspace(home, Path(socket)))
    logger = logging.getLogger("dagster.daemon.SensorDaemon")
    ahead_s, began, before = 0.0, time.monotonic(), _ticks(home)[0]
    with (
        WorkspaceProcessContext(instance, target) as workspace,
        patch("dagster._time._mockable_get_current_timestamp", lambda: time.time() + ahead_s),
        patch(
            "dagster._time._mockable_get_current_datetime",
            lambda: datetime.fromtimestamp(time.time() + ahead_s, UTC),
        ),
    ):
        for number in range(1, rounds + 1):
            # Without threads, as the home's `dagster.yaml` has it.
            for fault in execute_sensor_iteration(workspace, logger, None, None):
                assert fault is None or not isinstance(fault, SerializableErrorInfo), fault
            ahead_s += _STEP_S
            if number % max(1, rounds // _PARTS) == 0:
                newest, kept = _ticks(home)
                sys.stderr.write(f"{newest - before:,} ticks\n")
                yield Memory(
                    newest - before,
                    time.monotonic() - began,
                    _resident_mb(os.getpid()),
                    _resident_mb(server),
                    kept,
                    megabytes(home),
                )


def _ticks(home: Home) -> tuple[int, int]:
    """Return the number of the newest tick, and how many are kept."""
    with opened(home.dagster / SCHEDULES) as store:
        found: tuple[int, int] = store.execute("SELECT MAX(id), COUNT(*) FROM job_ticks").fetchone()
        return found


def megabytes(home: Home) -> float:
    """Return the size of a home's Dagster folder, in MB (10^6 bytes)."""
    return sum(path.stat().st_size for path in home.dagster.rglob("*") if path.is_file()) / 1e6


def _resident_mb(process: int) -> float:
    """Return the resident memory of a process, in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
