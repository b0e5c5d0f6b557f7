"""Two daemons and two code servers over one PostgreSQL and one home: killed, restarted, equal.

Dagster supports one daemon. Here two show that a second one does no harm to history.
"""

import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.timestamps import utc_now
from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.lake.dagster_services import services_in, write_instance
from tests.lake.servers import PostgresServer, create_database, find_postgres, running_postgres
from tests.pipeline.automation.daemon import BACKFILL, BACKFILL_STATUS, Pages
from tests.test_cli import ALMANAC, environment

pytestmark = [pytest.mark.lake, pytest.mark.timeout(3_600)]

MONTHS = [f"2025-{month:02}-01" for month in range(1, 13)]
LAUNCH = """
mutation($variables: ExecutionParams!) {
  launchPipelineExecution(executionParams: $variables) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""
RUNS = """
query { runsOrError { ... on Runs { results {
  runId status pipelineName tags { key value }
} } } }
"""
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
ROOT_RUN = "dagster/root_run_id"
QUOTA = 3_000
# The id of a batch has a hash of its requests, which depend on the pulls before, and the
# place of a version in the feed depends on the merges.
COMPARED = "* EXCLUDE (batch_id, published_seq)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server of its own, since the test restarts it."""
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    pytest.importorskip("dagster_postgres", reason="make lake-tools")
    with running_postgres(tmp_path / "database" / "server") as running:
        yield running


@pytest.fixture
def service() -> Iterator[Sandbox]:
    now = utc_now()
    # The export of the day is out, and the day has six more hours.
    earliest, latest = (now.replace(hour=hour, minute=30) for hour in (0, 17))
    with Sandbox(
        seed=1, pace=0.3, export_interval_s=0, now=min(max(now, earliest), latest)
    ) as sandbox:
        yield sandbox


def almanac(env: dict[str, str], *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [*ALMANAC, *words], env=env, capture_output=True, text=True, timeout=HANGS_AFTER_S
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def launch_daily(pages: Pages, day: str) -> str:
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "almanac",
        "pipelineName": "daily",
    }
    tags = {"tags": [{"key": "dagster/partition", "value": day}]}
    variables = {"selector": selector, "mode": "default", "executionMetadata": tags}
    launched = pages.query(LAUNCH, variables=variables)["launchPipelineExecution"]
    assert "run" in launched, launched
    return str(launched["run"]["runId"])


def ended_runs(pages: Pages) -> list[dict[str, Any]]:
    """Return all runs once none is in progress, else an empty list."""
    runs: list[dict[str, Any]] = pages.query(RUNS)["runsOrError"]["results"]
    return runs if all(run["status"] in ENDED for run in runs) else []


def is_in_progress(pages: Pages) -> bool:
    runs = pages.query(RUNS)["runsOrError"]["results"]
    return any(run["status"] == "STARTED" and run["pipelineName"] != "merge" for run in runs)


def succeeded(runs: list[dict[str, Any]], run_id: str) -> bool:
    """Whether a run succeeded, or the last of the runs that Dagster started after it."""
    return any(
        run["status"] == "SUCCESS"
        and (run["runId"] == run_id or {"key": ROOT_RUN, "value": run_id} in run["tags"])
        for run in runs
    )


def count_differences(first: Path, second: Path) -> tuple[int, int]:
    """Return how many versions only the first of two homes has, and only the second."""
    homes = {"first": first, "second": second}
    with duckdb.connect() as connection:
        for name, home in homes.items():
            connection.execute(f"ATTACH '{home / 'warehouse.duckdb'}' AS {name} (READ_ONLY)")

        def count(left: str, right: str) -> int:
            found = connection.execute(
                f"SELECT count(*) FROM (SELECT {COMPARED} FROM {left}.event_versions "
                f"EXCEPT ALL SELECT {COMPARED} FROM {right}.event_versions)"
            ).fetchone()
            assert found is not None
            return int(found[0])

        return count("first", "second"), count("second", "first")


def status_of(pages: Pages, backfill_id: str) -> str:
    found = pages.query(BACKFILL_STATUS, id=backfill_id)["partitionBackfillOrError"]
    return str(found["status"])


def test_two_daemons_with_kills_and_a_restart_leave_the_history_of_one_process(
    tmp_path: Path, server: PostgresServer, service: Sandbox
) -> None:
    def key() -> str:
        return service.new_key("enterprise", rate_per_s=50, burst=100, monthly_quota=QUOTA)

    given = {"ALMANAC_BASE_URL": service.base_url}
    home, alone = tmp_path / "home", tmp_path / "alone"
    plain = {**environment(alone), **given, "ALMANAC_API_KEY": key()}
    plain["ALMANAC_STATE"] = str(tmp_path / "machine of the other")
    env = {**environment(home), **given, "ALMANAC_API_KEY": key()}
    env |= write_instance(tmp_path / "instance", server.address)
    env["ALMANAC_POSTGRES"] = create_database(server, "shared")
    almanac(plain, "run")
    before = len(service.requests)
    with services_in(tmp_path / "services") as services:
        almanac(env, "daemon", "--check", code=1)  # Makes the tables.
        services.start_code("code-1", env)
        services.start_code("code-2", env)
        pages = services.start_web("web", env, code="code-1")
        services.start_daemon("daemon-1", env, code="code-1")
        services.start_daemon("daemon-2", env, code="code-2")
        wait_for(lambda: (home / "warehouse.duckdb").exists() and ended_runs(pages))
        today = service.advance(timedelta(hours=6)).date().isoformat()
        service.faults.set("slow=0.5~/v2/events")
        selection = {"assetSelection": [{"path": ["landed_calendar"]}], "partitionNames": MONTHS}
        launched = pages.query(BACKFILL, variables=selection)["launchPartitionBackfill"]
        daily = launch_daily(pages, today)
        wait_for(lambda: pages.worker_of(daily))
        code = services.name_of(wait_for(lambda: pages.worker_of(daily)))
        services.kill("daemon-1")
        services.kill(code)
        services.start_code(code, env)
        services.start_daemon("daemon-1", env, code="code-1")
        wait_for(lambda: is_in_progress(pages))
        server.stop()
        time.sleep(3)
        server.start()
        service.faults.set("")

        def all_done() -> list[dict[str, Any]]:
            runs = ended_runs(pages)
            is_done = status_of(pages, launched["backfillId"]) != "REQUESTED"
            return runs if is_done and succeeded(runs, daily) else []

        wait_for(all_done)
        almanac(env, "merge")
        spent = len(service.requests) - before
        service.forget_requests()
        almanac(plain, "run")
        year = ("--from", "2025-01-01", "--to", "2025-12-31", "--source", "list", "--yes")
        almanac(plain, "backfill", *year)
        assert status_of(pages, launched["backfillId"]) == "COMPLETED_SUCCESS"
        assert count_differences(home, alone) == (0, 0)
        assert spent <= QUOTA
        assert {request.status for request in service.requests} <= {200, 304}
        almanac(env, "status")
