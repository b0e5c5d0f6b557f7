"""Dagster's records of a small home, made once and copied, with runs that a test adds.

Belongs here: forked processes that hold a lock, write or die; homes with records. Not: asserts.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from pipeline.instance import instance_of
from pipeline.retention import OWNER_TAG
from pipeline.runs.dead_runs import announce
from pipeline.runs.place import LOCATION
from tests.hangs import HANGS_AFTER_S
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


def exit_code(child: int) -> int | None:
    """Wait for a process; None where it had to be killed because it did not end."""
    give_up_at = time.monotonic() + HANGS_AFTER_S
    while time.monotonic() < give_up_at:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def killed_after(child: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def copied(made: Path, target: Path) -> Home:
    """Return a copy of a home."""
    shutil.copytree(made, target)
    return Home(target)


def run_of(home: Home, *, job: str = "daily", location: str = LOCATION, part: str = "") -> str:
    """Add a started run of a code location to the records, for a partition; return its id."""
    tags = {OWNER_TAG: "almanac"} if location == LOCATION else {}
    # As of a run that Dagster launched: the tag of its repository is made from this when it is
    # stored, and is not among the tags of the run.
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    with instance_of(home) as instance:
        run = dg.DagsterRun(
            job_name=job,
            status=dg.DagsterRunStatus.STARTED,
            tags={**tags, "dagster/partition": part} if part else tags,
            remote_job_origin=repository.get_job_origin(job),
        )
        instance.run_storage.add_run(run)
        return run.run_id


def dies_with(home: Home, run_id: str) -> None:
    """Start a process that announces a run and is killed."""

    def work() -> None:
        announce(home, run_id)
        os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(forked(work)) == -signal.SIGKILL


def status_of(home: Home, run_id: str) -> str:
    with instance_of(home) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        return run.status.value
