"""A backfill of five years by the list, in the real daemon: it is killed and resumes by itself."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import date
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from tests.hangs import wait_for
from tests.pipeline.automation.daemon import BACKFILL, BACKFILL_STATUS, Pages, ui
from tests.test_cli import environment
from tests.unlimited import Unlimited
from warehouse.home import Home

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

SEGMENTS = 10
PAGES_KEPT = 5
MONTHS = [f"{year}-{month:02}-01" for year in range(2021, 2026) for month in range(1, 13)]
RECORDED = """
query { assetNodes(assetKeys: [{path: ["landed_calendar"]}]) {
  assetMaterializations(limit: 2000) { partition runId }
} }
"""
RUNS = """
query { runsOrError { ... on Runs { results { runId status pipelineName parentRunId } } } }
"""


@pytest.fixture
def service() -> Iterator[Sandbox]:
    """A sandbox of its own, since the test sets faults."""
    with Sandbox(seed=1, export_interval_s=0) as sandbox:
        yield sandbox


def recorded(pages: Pages) -> list[tuple[str, str]]:
    (node,) = pages.query(RECORDED)["assetNodes"]
    return [(record["partition"], record["runId"]) for record in node["assetMaterializations"]]


def runs_of_calendar(pages: Pages) -> list[dict[str, Any]]:
    runs = pages.query(RUNS)["runsOrError"]["results"]
    return [run for run in runs if run["pipelineName"] in ("__ASSET_JOB", "calendar")]


def ended(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs once none is in progress, else an empty list."""
    return runs if all(run["status"] in ("SUCCESS", "FAILURE") for run in runs) else []


def status_of(pages: Pages, backfill_id: str) -> str | None:
    """Return how a backfill ended, None while it has not."""
    found = pages.query(BACKFILL_STATUS, id=backfill_id)["partitionBackfillOrError"]["status"]
    return None if found == "REQUESTED" else str(found)


def pages_requested(sandbox: Sandbox) -> int:
    return sum(
        request.path == "/v2/events" and "limit=1&" not in f"{request.query}&"
        for request in sandbox.requests
    )


def test_a_killed_backfill_of_five_years_ends_with_every_month_recorded(
    tmp_path: Path, service: Sandbox
) -> None:
    home = tmp_path / "home"
    key = service.new_key("elite")
    with CatalogClient(service.base_url, key, limiter=Unlimited()) as client:
        total = client.events_total(date(2021, 1, 1), date(2025, 12, 31))
    assert total is not None
    whole = ceil(total / 100)
    given = {
        "ALMANAC_BASE_URL": service.base_url,
        "ALMANAC_API_KEY": key,
        # Only the backfill is to be counted; the first pull of a home would record all months.
        **{"ALMANAC_AUTOMATION": "unmerged_batches"},
    }
    service.faults.set("slow=0.3~/v2/events")
    service.forget_requests()
    with ui(home, {**environment(home), **given}) as (_, pages):
        wait_for(lambda: pages.query(RECORDED)["assetNodes"])
        data = pages.query(
            BACKFILL,
            variables={"assetSelection": [{"path": ["landed_calendar"]}], "partitionNames": MONTHS},
        )
        backfill_id = data["launchPartitionBackfill"]["backfillId"]
        run = wait_for(lambda: runs_of_calendar(pages))[0]["runId"]
        wait_for(lambda: len(recorded(pages)) >= 10)
        worker = wait_for(lambda: pages.worker_of(run))
        os.kill(worker, signal.SIGKILL)
        before = {partition for partition, _ in recorded(pages)}
        requested_before = pages_requested(service)
        landing = Home(home).landing
        landed = sum(landing.manifest(batch_id).requests for batch_id in landing.batch_ids())
        assert len(before) < len(MONTHS)
        # The daemon detects the dead run and starts it again without help.
        wait_for(lambda: {month for month, _ in recorded(pages)} == set(MONTHS))
        wait_for(
            lambda: all(run["status"] in ("SUCCESS", "FAILURE") for run in runs_of_calendar(pages))
        )
        runs = runs_of_calendar(pages)
        status = wait_for(lambda: status_of(pages, backfill_id))
        pairs = recorded(pages)
        wait_for(lambda: not list((home / "landing" / "pending").iterdir()))
    requested = pages_requested(service)
    sys.stdout.write(
        json.dumps(
            {
                "pages of the whole list": whole,
                "requested": requested,
                "requested before the kill": requested_before,
                "in flight at the kill": requested_before - landed,
                "recorded before the kill": len(before),
                "runs": [(run["status"], run["parentRunId"] is not None) for run in runs],
                "backfill": status,
            }
        )
    )
    assert len(pairs) == len(set(pairs)), "a run records a month once"
    in_flight = requested_before - landed
    assert in_flight <= SEGMENTS * PAGES_KEPT
    # At the kill, each segment ends with a page that is not full, and begins with another one.
    assert requested <= ceil(whole * 1.02) + in_flight + SEGMENTS
    assert sum(run["status"] == "SUCCESS" for run in runs) == 1
    assert status == "COMPLETED_SUCCESS"
