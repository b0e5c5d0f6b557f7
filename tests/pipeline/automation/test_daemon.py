"""The real pages and daemon: runs launched from the pages succeed, and both programs stop."""

import os
import signal
import subprocess
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import BACKFILL, BACKFILL_STATUS, SENSOR_RUNS, ui
from tests.test_cli import ALMANAC, environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three days."""
    folder = tmp_path_factory.mktemp("daemon") / "home"
    subprocess.run(
        [*ALMANAC, "run", "--days", "3", "--json"],
        cwd=folder.parent,
        env=with_few_coins(folder),
        check=True,
        capture_output=True,
        timeout=HANGS_AFTER_S,
    )
    return folder


def with_few_coins(home: Path) -> dict[str, str]:
    return {**environment(home), "ALMANAC_COINS": "bitcoin,ethereum"}


def days_of(home: Path) -> list[str]:
    folders = (home / "landing" / "batches").iterdir()
    return sorted(path.name for path in folders)


def test_a_materialisation_and_a_backfill_of_past_days_succeed_and_what_lands_is_merged(
    home: Path,
) -> None:
    *past, today = days_of(home)
    with ui(home, with_few_coins(home)) as (_, pages):
        run_id = pages.materialise("landed_cancellations", today)
        data = pages.query(
            BACKFILL,
            variables={
                "assetSelection": [
                    {"path": [name]} for name in ("landed_export", "event_changes", "events")
                ],
                "partitionNames": past,
            },
        )
        backfill_id = data["launchPartitionBackfill"]["backfillId"]

        def backfill() -> dict[str, Any] | None:
            found = pages.query(BACKFILL_STATUS, id=backfill_id)["partitionBackfillOrError"]
            return None if found["status"] == "REQUESTED" else found

        found = wait_for(backfill)
        assert found["status"] == "COMPLETED_SUCCESS"
        assert len(found["runs"]) <= 3
        assert wait_for(lambda: pages.run_status(run_id) == "SUCCESS")
        # The sensor requested the merge of today's pull.
        wait_for(lambda: not list((home / "landing" / "pending").iterdir()))
        wait_for(lambda: pages.query(SENSOR_RUNS)["runsOrError"]["results"])


def test_a_day_that_was_not_landed_fails_in_the_pages_too(home: Path) -> None:
    missed = date.fromisoformat(days_of(home)[0]) - timedelta(days=9)
    with ui(home, with_few_coins(home)) as (_, pages):
        run_id = pages.materialise("landed_export", missed.isoformat())
        assert wait_for(lambda: pages.run_status(run_id) == "FAILURE")


def test_a_killed_run_is_noticed_and_its_slot_is_free_again(home: Path) -> None:
    today = days_of(home)[-1]
    with ui(home, with_few_coins(home)) as (_, pages):
        run_id = pages.materialise("landed_export", today)
        os.kill(wait_for(lambda: pages.worker_of(run_id)), signal.SIGKILL)
        assert wait_for(lambda: pages.run_status(run_id) == "FAILURE")
        next_run = pages.materialise("landed_export", today)
        assert wait_for(lambda: pages.run_status(next_run) == "SUCCESS")
