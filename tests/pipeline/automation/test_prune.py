"""What a prune deletes of an instance, and what the UI shows of assets before and after."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.automation import prune
from pipeline.automation.prune import prune_home
from pipeline.build import build_definitions
from pipeline.instance import OWNER_TAG, instance_of
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


def pruned(home: Home, after: timedelta, **given: Any) -> int:
    """Prune at a time after now, and return the number of deleted runs."""
    settings = settings_of(home.root, keep_days=10)
    with instance_of(home) as instance:
        at = datetime.now(UTC) + after
        return prune_home(home, settings, at, instance=instance, **given)["Dagster runs"]


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
    assert pruned(home, MUCH_LATER, dry_run=True) == 4
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
