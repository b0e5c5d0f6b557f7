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

from pipeline.automation.health import PROCESS_TAG
from pipeline.instance import OWNER_TAG, open_instance
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


def ended_process() -> int:
    """Return the id of a process that ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def start_run(instance: dg.DagsterInstance, process: str = "", **tags: str) -> str:
    """Add a started run of `daily` to the records; `process` is what its tag has after its id."""
    run = dg.DagsterRun(
        job_name="daily", status=dg.DagsterRunStatus.STARTED, tags={OWNER_TAG: "almanac", **tags}
    )
    instance.run_storage.add_run(run)
    if process:
        instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{run.run_id} {process}"})
    return run.run_id


def status_of(instance: dg.DagsterInstance, run_id: str) -> str:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status.value


def report_daemon(home: Home, at: datetime) -> None:
    """Record that the daemon reported at a time, as Dagster does."""
    with open_instance(home):
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
