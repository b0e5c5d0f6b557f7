"""Polls in the real daemon: a kill loses and doubles none; and many runs at once."""

import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import BACKFILL, Pages, group_of, is_gone, ui
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

LEAST_APART = timedelta(seconds=58)
"""The service's answers are a minute old: a sooner pull shows nothing new."""
RUNS = """
query { runsOrError(limit: 500) { ... on Runs { results {
  runId status pipelineName repositoryOrigin { repositoryLocationName }
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


def cancellation_pulls(service: Sandbox) -> list[datetime]:
    """Return when cancellations were pulled: each poll of this home pulls them once."""
    return [
        request.at for request in service.requests if request.path == "/v2/events/cancellations"
    ]


def kill_programs(home: Path, process: subprocess.Popen[str]) -> None:
    """Kill `almanac ui`, all programs that it started, and their runs."""
    process.kill()
    process.wait(HANGS_AFTER_S)
    os.killpg(group_of(home), signal.SIGKILL)
    wait_for(lambda: is_gone(group_of(home)))


def test_no_poll_is_lost_or_doubled_when_all_programs_are_killed(
    home: Path, env: dict[str, str], service: Sandbox
) -> None:
    def polled(pages: Pages, status: str) -> list[dict[str, Any]]:
        return [run for run in runs_of(pages, "poll") if run["status"] == status]

    service.forget_requests()
    service.faults.set("slow=10")
    with ui(home, env) as (process, pages):
        # In the middle of the poll: the service is about to answer the first of its requests.
        wait_for(lambda: cancellation_pulls(service))
        (killed,) = polled(pages, "STARTED")
        kill_programs(home, process)
    service.faults.clear()
    assert len(cancellation_pulls(service)) == 1
    with ui(home, env) as (_, pages):
        wait_for(lambda: polled(pages, "SUCCESS"))
        runs = runs_of(pages, "poll", "daily", "merge")
        in_progress = [run for run in runs if run["status"] in ("STARTED", "QUEUED")]
        assert [run["runId"] for run in polled(pages, "FAILURE")] == [killed["runId"]]
        assert not [run for run in in_progress if run["runId"] == killed["runId"]]
        origins = {run["repositoryOrigin"]["repositoryLocationName"] for run in runs}
        assert origins == {"almanac"}, "runs of `almanac run` too are on the Timeline"
    pulled_at = cancellation_pulls(service)
    assert all(later - earlier >= LEAST_APART for earlier, later in pairwise(pulled_at))
    landing = Home(home).landing
    cancelled = [batch for batch in landing.batch_ids() if "-cancellations-" in batch]
    assert len(cancelled) == 2, "of the first pull, and of the killed poll or the next"
    assert [request for request in service.requests if request.path == "/v2/usage"] == []
    assert landing.journal.open_pulls() == []
    verified = subprocess.run(
        [*ALMANAC, "verify", "--json"], cwd=home.parent, env=env, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


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
