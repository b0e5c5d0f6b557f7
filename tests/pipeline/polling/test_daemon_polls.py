"""Polls in the real daemon: a kill loses and doubles none; and many runs at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.ui.names import CODE_SERVER, DAEMON, lock_of
from tests.pipeline.automation.daemon import BACKFILL, Pages, ui, wait_for
from tests.test_cli import ALMANAC, environment
from warehouse.files.locks import holder
from warehouse.home import Home

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EVERY_S = 60
"""The service's answers are a minute old: a sooner pull shows nothing new."""
RUNS = """
query { runsOrError(limit: 500) { ... on Runs { results {
  runId status pipelineName tags { key value }
} } } }
"""
IN_PROGRESS_STATUSES = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


@pytest.fixture
def service() -> Iterator[Sandbox]:
    with Sandbox(seed=1, export_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture
def env(tmp_path: Path, service: Sandbox) -> dict[str, str]:
    return {
        **environment(tmp_path / "home"),
        "ALMANAC_BASE_URL": service.base_url,
        "ALMANAC_API_KEY": service.new_key("pro"),
        "ALMANAC_POLL_INTERVAL_S": "1",
    }


@pytest.fixture
def home(tmp_path: Path, env: dict[str, str]) -> Path:
    """A home after its first pull."""
    subprocess.run(
        [*ALMANAC, "run", "--json"], cwd=tmp_path, env=env, check=True, capture_output=True
    )
    return tmp_path / "home"


def runs_of(pages: Pages, *jobs: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = pages.query(RUNS)["runsOrError"]["results"]
    return [run for run in runs if run["pipelineName"] in jobs]


def pulls_of(service: Sandbox) -> list[datetime]:
    """Return when cancellations were pulled: each poll of this home pulls them once."""
    return [
        request.at for request in service.requests if request.path == "/v2/events/cancellations"
    ]


def await_more(service: Sandbox, seen: int) -> int:
    wait_for(lambda: len(pulls_of(service)) > seen)
    return len(pulls_of(service))


def test_no_poll_is_lost_or_doubled_when_the_programs_are_killed(
    home: Path, env: dict[str, str], service: Sandbox
) -> None:
    service.forget_requests()
    seen = 0
    for program in (DAEMON, CODE_SERVER):
        with ui(home, env) as (process, _):
            seen = await_more(service, seen)
            found = holder(lock_of(Home(home), program))
            assert found is not None
            os.kill(found.pid, signal.SIGKILL)
            assert process.wait(30) == 1
    with ui(home, env) as (_, pages):
        seen = await_more(service, seen)
        # One more, so that the end of the test does not interrupt the last one.
        await_more(service, seen)
        assert runs_of(pages, "poll") == []
    pulled_at = pulls_of(service)
    apart = [later - earlier for earlier, later in pairwise(pulled_at)]
    usage = [request for request in service.requests if request.path == "/v2/usage"]
    figures = {
        "pulls": len(pulled_at),
        "requests of the usage": len(usage),
        "least apart, seconds": min(apart).total_seconds(),
        "most apart, seconds": max(apart).total_seconds(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    assert usage == []
    assert min(apart) >= timedelta(seconds=EVERY_S - 2)


def test_concurrent_runs_wait_for_each_other_and_leave_a_valid_home(
    home: Path, env: dict[str, str], service: Sandbox
) -> None:
    today = sorted(path.name for path in (home / "landing" / "batches").iterdir())[-1]
    month = f"{today[:7]}-01"
    with ui(home, env) as (_, pages):
        for assets, partition in (
            (["landed_events", "event_changes"], today),
            (["landed_coins"], today),
            (["landed_calendar"], month),
            (["landed_calendar"], month),
            (["landed_cancellations", "event_changes", "events"], today),
        ):
            figures = {
                "assetSelection": [{"path": [name]} for name in assets],
                "partitionNames": [partition],
            }
            pages.query(BACKFILL, variables=figures)
        wait_for(lambda: len(runs_of(pages, "__ASSET_JOB")) >= 5)
        runs = wait_for(lambda: ended(runs_of(pages, "__ASSET_JOB")))
        wait_for(lambda: not list((home / "landing" / "pending").iterdir()))
        wait_for(lambda: ended(runs_of(pages, "merge", "poll")) or not runs_of(pages, "merge"))
    assert [run["status"] for run in runs] == ["SUCCESS"] * len(runs)
    assert all(request.status != 429 for request in service.requests)
    verified = subprocess.run(
        [*ALMANAC, "verify", "--json"], cwd=home.parent, env=env, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def ended(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs once none is in progress, else an empty list."""
    return [] if any(run["status"] in IN_PROGRESS_STATUSES for run in runs) else runs
