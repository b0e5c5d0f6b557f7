"""Runs in the records of a home, and processes that end."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import dagster as dg

from pipeline.automation.dead_runs import PROCESS_TAG
from pipeline.instance import OWNER_TAG, instance_of
from warehouse.files.locks import host
from warehouse.home import Home


def forked(work: Callable[[], object]) -> int:
    """Run a function in a forked process, which exits with 0 on success; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    with suppress(BaseException):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        code = 0
    os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ended_process() -> int:
    """Return the id of a process that ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def start_run(home: Home, process: str, *, part: str = "", **tags: str) -> str:
    """Add a started run of `daily` to the records; `process` is what its tag has after its id."""
    with instance_of(home) as instance:
        run = dg.DagsterRun(
            job_name="daily",
            status=dg.DagsterRunStatus.STARTED,
            tags={OWNER_TAG: "almanac", **({"dagster/partition": part} if part else {}), **tags},
        )
        instance.run_storage.add_run(run)
        if process:
            instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{run.run_id} {process}"})
        return run.run_id


def start_dead_run(home: Home, *, part: str = "") -> str:
    """Add a run whose process is gone."""
    return start_run(home, f"{host()} {ended_process()} 1", part=part)


def status_of(home: Home, run_id: str) -> str:
    with instance_of(home) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        return run.status.value


def report_daemon(home: Home, at: datetime) -> None:
    """Record that the daemon reported at a time, as Dagster does."""
    with instance_of(home):
        pass
    kind = "SENSOR"
    beat = {
        "__class__": "DaemonHeartbeat",
        "daemon_id": "x",
        "daemon_type": kind,
        "errors": [],
        "timestamp": at.timestamp(),
    }
    with sqlite3.connect(home.dagster / "history/runs.db") as records:
        records.execute("DELETE FROM daemon_heartbeats")
        records.execute(
            "INSERT INTO daemon_heartbeats (daemon_type, daemon_id, timestamp, body) "
            "VALUES (?, 'x', ?, ?)",
            (kind, f"{at:%Y-%m-%d %H:%M:%S.%f}", json.dumps(beat)),
        )
    records.close()
