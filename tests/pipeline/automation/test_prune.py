"""What a prune deletes of an instance, and what the UI shows of assets before and after."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import dagster as dg
import pytest

from almanac.reading.attached_file import set_aside_foreign_wal
from catalog.sandbox.sandbox import Sandbox
from pipeline.automation import prune
from pipeline.automation.prune import prune_files, prune_runs
from pipeline.build import build_definitions
from pipeline.instance import OWNER_TAG, instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.run_records import start_run, status_of
from warehouse.home import Home

PARTS = dg.StaticPartitionsDefinition(["a", "b", "c"])
MUCH_LATER = timedelta(days=15)


@dg.asset(partitions_def=PARTS)
def landed() -> None: ...


@dg.asset(deps=[landed])
def table() -> None: ...


DEFINITIONS = dg.Definitions(
    assets=[landed, table],
    jobs=[
        dg.define_asset_job("land", ["landed"], tags={OWNER_TAG: "almanac"}),
        dg.define_asset_job("publish", ["table"], tags={OWNER_TAG: "almanac"}),
    ],
    executor=dg.in_process_executor,
)


def run(instance: dg.DagsterInstance, job: str, part: str | None = None, **tags: str) -> str:
    """Execute a job, and return the id of its run."""
    done = DEFINITIONS.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=part, run_config=QUIET, tags=tags
    )
    return done.run_id


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with two runs for each part, and two that publish."""
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    with instance_of(home) as instance:
        for _ in range(2):
            for part in PARTS.get_partition_keys():
                run(instance, "land", part)
            run(instance, "publish")
    return home


def pruned(home: Home, after: timedelta) -> int:
    """Prune at a time after now, and return the number of deleted runs."""
    settings = settings_of(home.root, keep_days=10)
    with instance_of(home) as instance:
        before = datetime.now(UTC) + after - timedelta(days=settings.keep_days)
        return prune_runs(home, settings, before, instance)


def shown(home: Home) -> dict[str, Any]:
    """Return the run of the newest materialisation of each part, and of the table."""
    with instance_of(home) as instance:
        parts = {
            part: instance.fetch_materializations(
                dg.AssetRecordsFilter(landed.key, asset_partitions=[part]), limit=1
            )
            for part in PARTS.get_partition_keys()
        }
        latest = instance.get_latest_materialization_event(table.key)
        return {
            **{part: found.records[0].run_id for part, found in parts.items()},
            "table": latest and latest.run_id,
        }


def test_runs_with_the_latest_materialisations_stay_and_older_ones_go(home: Home) -> None:
    before = shown(home)
    assert pruned(home, timedelta(days=9)) == 0
    assert pruned(home, MUCH_LATER) == 4
    assert shown(home) == before
    databases = {path.stem for path in (home.dagster / "history/runs").glob("*-*.db")}
    assert databases == set(before.values())
    assert pruned(home, MUCH_LATER) == 0


def test_runs_in_progress_and_the_newest_of_each_job_stay(home: Home) -> None:
    active = start_run(home, "")
    with instance_of(home) as instance:
        run(instance, "land", "a")
        newest = dg.DagsterRun(
            job_name="land", status=dg.DagsterRunStatus.FAILURE, tags={OWNER_TAG: "almanac"}
        )
        instance.run_storage.add_run(newest)
    pruned(home, MUCH_LATER)
    assert status_of(home, active) == "STARTED"
    assert status_of(home, newest.run_id) == "FAILURE"


def test_in_another_instance_runs_of_others_stay(home: Home) -> None:
    with instance_of(home) as instance:
        other = run(instance, "land", "a", **{OWNER_TAG: "other"})
        run(instance, "land", "a")
    another = Home(home.root / "another", dagster_home=home.dagster)
    another.claim("sandbox:1")
    assert pruned(another, MUCH_LATER) == 5
    assert status_of(home, other) == "SUCCESS"


def test_the_number_of_runs_of_each_job_is_limited(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "RUNS_OF_A_JOB", 3)
    with instance_of(home) as instance:
        for _ in range(4):
            run(instance, "publish")
    assert pruned(home, timedelta(0)) == 3 + 3
    with instance_of(home) as instance:
        assert len(instance.get_run_records(dg.RunsFilter(job_name="publish"))) == 3


def test_the_job_prunes_the_instance_in_which_it_runs(home: Home) -> None:
    settings = settings_of(home.root, keep_days=10)
    later = datetime.now(UTC) + MUCH_LATER
    job = build_definitions(settings, clock=lambda: later).resolve_job_def("prune")
    with instance_of(home) as instance:
        assert job.execute_in_process(instance=instance, run_config=QUIET).success
        assert len(instance.get_run_records(dg.RunsFilter(job_name="land"))) == 3


def test_prune_removes_what_killed_processes_left_and_nothing_that_may_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    old, young, verify, spill = (
        home.root / "landing" / ".unfinished-1-a",
        home.root / "landing" / ".unfinished-2-b",
        home.state / "almanac-verify-x",
        home.state / "spill",
    )
    for folder in (home.root / "landing", verify, spill):
        folder.mkdir(parents=True)
    for file in (old, young, verify / "warehouse.duckdb"):
        file.write_bytes(b"12345")
    two_hours_ago = time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    assert prune_files(home, datetime.now(UTC))["unfinished files"] == 2
    assert [path.exists() for path in (old, young, verify)] == [False, True, False]
    (spill / "123").mkdir()
    (spill / "123" / "block").write_bytes(b"123")
    assert prune_files(home, datetime.now(UTC))["unfinished files"] == 1
    assert prune_files(home, datetime.now(UTC))["unfinished files"] == 0


def test_prune_removes_what_was_set_aside_long_ago_and_folders_of_dead_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    written = datetime.now(UTC) - timedelta(days=91)
    wal = home.warehouse.with_name("warehouse.duckdb.wal")
    wal.write_bytes(b"12345")
    os.utime(wal, (written.timestamp(), written.timestamp()))
    foreign = set_aside_foreign_wal(home.warehouse)
    assert foreign is not None
    yesterday = datetime.now(UTC) - timedelta(days=1)
    young = wal.with_name(f"{wal.name}.foreign-{yesterday:%Y%m%dT%H%M%S}000000Z")
    young.write_bytes(b"1")
    dead = tmp_path / "almanac-process-dead"
    dead.mkdir()
    (dead / "answer").write_bytes(b"1234567")
    counts = prune_files(home, datetime.now(UTC) - timedelta(days=60))
    assert counts["foreign .wal files"] == counts["temporary folders"] == 1
    assert foreign.exists() is dead.exists() is False
    assert young.exists()


@pytest.fixture
def given(almanac_sandbox: Sandbox, tmp_path: Path) -> dict[str, str]:
    return {
        **{"base_url": almanac_sandbox.base_url, "home": str(tmp_path / "data")},
        **{"api_key": almanac_sandbox.new_key("enterprise"), "coins": "bitcoin"},
        **{"plan": "elite", "max_clock_skew_days": "3"},
    }


def test_almanac_run_deletes_old_request_logs(almanac: Almanac, given: dict[str, str]) -> None:
    logs = Home(Path(given["home"])).state / "requests"
    logs.mkdir(parents=True)
    days = [datetime.now(UTC).date() - timedelta(days=ago) for ago in (59, 61)]
    young, old = (logs / f"{day}.jsonl" for day in days)
    for log in (young, old):
        log.touch()
    almanac("run", **given)
    assert young.exists() and not old.exists()


def test_almanac_run_succeeds_if_old_files_cannot_be_deleted(
    almanac: Almanac, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("it may not be deleted")

    monkeypatch.setattr(prune, "prune_files", fail)
    done = almanac("run", **given)
    assert "Old files could not be deleted: it may not be deleted" in done.stderr
