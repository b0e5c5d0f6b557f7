"""Runs whose process was killed are marked as failed, and old runs and files are deleted."""

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import dagster as dg
import pytest

from almanac.reading.attached_file import set_aside_foreign_wal
from assets.layout import Layout
from pipeline.automation import jobs
from pipeline.automation.health import PROCESS_TAG, fail_dead_runs, process_tags
from pipeline.automation.jobs import prune_files, prune_runs
from pipeline.build import build_definitions
from pipeline.instance import OWNER_TAG, open_instance
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.run_records import ended_process, start_run, status_of
from warehouse.files.locks import host
from warehouse.home import Home


def start_dead_run(instance: dg.DagsterInstance) -> str:
    return start_run(instance, f"{host()} {ended_process()} 1")


def test_a_run_is_failed_once_its_process_is_killed(instance: dg.DagsterInstance) -> None:
    """It is a zombie until its parent waits for it."""
    script = (
        "from pipeline.automation.health import PROCESS_TAG, process_tags\n"
        "print(process_tags('x')[PROCESS_TAG], flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        tag = process.stdout.readline().strip()
        run_id = start_run(instance, tag.partition(" ")[2])
        assert fail_dead_runs(instance) == []
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert fail_dead_runs(instance) == [run_id]
    assert status_of(instance, run_id) == "FAILURE"
    assert fail_dead_runs(instance) == []


def test_runs_of_this_process_of_other_hosts_and_without_a_tag_stay(
    instance: dg.DagsterInstance,
) -> None:
    own = process_tags("x")[PROCESS_TAG].partition(" ")[2]
    runs = [start_run(instance, process) for process in (own, "elsewhere 1 1", "", "damaged")]
    assert fail_dead_runs(instance) == []
    assert {status_of(instance, run_id) for run_id in runs} == {"STARTED"}


def test_a_retry_is_not_judged_by_the_process_of_the_run_that_it_repeats(
    instance: dg.DagsterInstance,
) -> None:
    dead = start_dead_run(instance)
    run = instance.get_run_by_id(dead)
    assert run is not None
    tag = run.tags[PROCESS_TAG]
    start_run(instance, "", **{PROCESS_TAG: tag})
    assert fail_dead_runs(instance) == [dead]


def test_the_sensor_fails_dead_runs_and_a_process_that_has_the_id_of_an_ended_one(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    dead = start_run(instance, f"{host()} {os.getpid()} 1")
    with dg.build_sensor_context(instance=instance) as context:
        evaluated = repository.get_sensor_def("health").evaluate_tick(context)
    assert evaluated.run_requests == []
    assert f"marked as failed: {dead}." in str(evaluated.skip_message)


def test_a_run_has_the_tag_of_its_process(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    Home(tmp_path).claim("sandbox:1")
    job = build_definitions(settings_of(tmp_path)).resolve_job_def("prune")
    run_id = job.execute_in_process(instance=instance).run_id
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.tags.items() >= process_tags(run_id).items()


PARTS = dg.StaticPartitionsDefinition(["a", "b"])
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two runs for each part, and two that publish."""
    home = Home(tmp_path_factory.mktemp("pruned") / "home")
    home.claim("sandbox:1")
    with open_instance(home) as instance:
        for _ in range(2):
            for part in PARTS.get_partition_keys():
                run(instance, "land", part)
            run(instance, "publish")
    return home.root


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Home:
    return Home(shutil.copytree(made, tmp_path / "home"))


def shown(home: Home) -> dict[str, Any]:
    """Return the run of the newest materialisation of each part, and of the table."""
    with open_instance(home) as instance:
        latest = instance.get_latest_materialization_event(table.key)
        found = {"table": latest and latest.run_id}
        for part in PARTS.get_partition_keys():
            of_part = dg.AssetRecordsFilter(landed.key, asset_partitions=[part])
            found[part] = instance.fetch_materializations(of_part, limit=1).records[0].run_id
        return found


def pruned(home: Home, after: timedelta) -> int:
    """Prune at a time after now, and return the number of deleted runs."""
    settings = settings_of(home.root, keep_days=10)
    with dg.DagsterInstance.from_config(str(home.instance_folder)) as instance:
        before = datetime.now(UTC) + after - timedelta(days=settings.keep_days)
        return prune_runs(home, Layout(), before, instance)


def test_runs_with_the_latest_materialisations_stay_and_older_ones_go(home: Home) -> None:
    before = shown(home)
    with open_instance(home) as instance:
        for made in instance.get_runs():
            output = home.dagster / "storage" / made.run_id / "compute_logs" / "x.err"
            output.parent.mkdir(parents=True)
            output.touch()
    assert pruned(home, timedelta(days=9)) == 0
    assert pruned(home, MUCH_LATER) == 3
    assert shown(home) == before
    databases = {path.stem for path in (home.dagster / "history/runs").glob("*-*.db")}
    assert databases == set(before.values())
    assert {path.name for path in (home.dagster / "storage").iterdir()} == databases
    assert pruned(home, MUCH_LATER) == 0


def test_runs_in_progress_and_the_newest_of_each_job_stay(home: Home) -> None:
    with open_instance(home) as instance:
        active = start_run(instance)
        run(instance, "land", "a")
        newest = dg.DagsterRun(
            job_name="land", status=dg.DagsterRunStatus.FAILURE, tags={OWNER_TAG: "almanac"}
        )
        instance.run_storage.add_run(newest)
    pruned(home, MUCH_LATER)
    with open_instance(home) as instance:
        assert status_of(instance, active) == "STARTED"
        assert status_of(instance, newest.run_id) == "FAILURE"


def test_in_another_instance_runs_of_others_stay(home: Home) -> None:
    with open_instance(home) as instance:
        other = run(instance, "land", "a", **{OWNER_TAG: "other"})
        run(instance, "land", "a")
    another = Home(home.root / "another", dagster_home=home.dagster)
    another.claim("sandbox:1")
    assert pruned(another, MUCH_LATER) == 4
    with open_instance(home) as instance:
        assert status_of(instance, other) == "SUCCESS"


def test_the_number_of_runs_of_each_job_is_limited(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RUNS_OF_A_JOB", 3)
    with open_instance(home) as instance:
        for _ in range(2):
            run(instance, "publish")
    assert pruned(home, timedelta(0)) == 1 + 1
    with open_instance(home) as instance:
        assert len(instance.get_run_records(dg.RunsFilter(job_name="publish"))) == 3


def test_the_job_prunes_the_instance_in_which_it_runs(home: Home) -> None:
    settings = settings_of(home.root, keep_days=10)
    later = datetime.now(UTC) + MUCH_LATER
    job = build_definitions(settings, clock=lambda: later).resolve_job_def("prune")
    with open_instance(home) as instance:
        assert job.execute_in_process(instance=instance, run_config=QUIET).success
        assert len(instance.get_run_records(dg.RunsFilter(job_name="land"))) == 2


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
