"""What a prune deletes of an instance, and what the UI shows of assets before and after."""

import os
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from pipeline.retention import OWNER_TAG
from pipeline.runs.place import REPOSITORY_TAG
from tests.pipeline.retention.history import (
    DEFINITIONS,
    LABEL,
    LATER,
    MUCH_LATER,
    PARTS,
    Shown,
    bytes_of,
    opened,
    pruned,
    run,
    run_databases,
)
from warehouse.home import Home

FAILED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
VERY_MUCH_LATER = timedelta(days=1_000)


def test_runs_with_the_latest_materialisations_stay_and_older_ones_go(
    home: Home, shown: Shown
) -> None:
    size = bytes_of(home)
    found = pruned(home, MUCH_LATER)
    with opened(home) as instance:
        after = Shown.of(instance)
        left = [each.job_name for each in instance.get_runs()]
    assert after == shown
    assert shown.partitions["landed"] == set(PARTS.get_partition_keys())
    # The latest of each part, the failed run, which is the newest of its job, and the company's.
    assert sorted(left) == [*["land"] * 4, "publish", "theirs", "theirs"]
    assert found["Dagster runs"].count == 4
    assert found["Dagster runs"].bytes > 4 * 100_000
    assert size - bytes_of(home) > 4 * 100_000
    assert len(run_databases(home)) == 7
    with opened(home) as instance:
        for part in PARTS.get_partition_keys():
            run(instance, "land", part)
    assert pruned(home, MUCH_LATER)["Dagster runs"].count == 4
    assert pruned(home, MUCH_LATER)["Dagster runs"].count == 0


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_a_prune_starts_no_eager_asset_downstream(home: Home) -> None:
    with opened(home) as instance:
        seen = dg.evaluate_automation_conditions(DEFINITIONS, instance)
        again = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=seen.cursor)
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        after = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=again.cursor)
        run(instance, "publish")
        changed = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=after.cursor)
    assert again.total_requested == after.total_requested == 0
    assert changed.total_requested == 1


def test_failed_runs_are_kept_longer(home: Home) -> None:
    with opened(home) as instance:
        run(instance, "land", "a")
    assert pruned(home, LATER)["Dagster runs"].count > 0
    with opened(home) as instance:
        assert len(instance.get_runs(FAILED)) == 1
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert instance.get_runs(FAILED) == []


def test_runs_in_progress_and_young_runs_stay(home: Home) -> None:
    job = DEFINITIONS.resolve_job_def("land")
    with opened(home) as instance:
        active = [
            instance.create_run_for_job(job, status=status).run_id
            for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING)
        ]
    databases = run_databases(home)
    assert all(each.count == 0 for each in pruned(home, timedelta(days=9)).values())
    assert run_databases(home) == databases
    pruned(home, VERY_MUCH_LATER)
    with opened(home) as instance:
        assert all(instance.has_run(run_id) for run_id in active)


@pytest.mark.parametrize("is_own", [True, False])
def test_runs_of_other_homes_and_code_locations_stay(home: Home, is_own: bool) -> None:
    job = DEFINITIONS.resolve_job_def("land")
    with opened(home) as instance:
        other_home, other_code, ours = (
            job.execute_in_process(instance=instance, partition_key="a", tags=tags).run_id
            for tags in (
                {OWNER_TAG: "other"},
                {REPOSITORY_TAG: "__repository__@theirs"},
                {REPOSITORY_TAG: "__repository__@almanac"},
            )
        )
        unlabelled = (
            dg.define_asset_job("land", ["landed"])
            .resolve(asset_graph=DEFINITIONS.resolve_asset_graph())
            .execute_in_process(instance=instance, partition_key="a")
            .run_id
        )
        run(instance, "land", "a")
    if not is_own:
        home = Home(home.root / "another", dagster_home=home.dagster)
        home.claim("sandbox:1")
    pruned(home, VERY_MUCH_LATER)
    with opened(home) as instance:
        assert instance.has_run(other_home)
        assert instance.has_run(other_code) is is_own
        assert instance.has_run(unlabelled) is not is_own
        assert not instance.has_run(ours)
        labelled = instance.get_runs(dg.RunsFilter(tags={OWNER_TAG: LABEL}))
    assert len(labelled) >= len(PARTS.get_partition_keys())


def test_the_number_of_runs_of_each_job_is_limited(home: Home) -> None:
    with opened(home) as instance:
        for _ in range(4):
            run(instance, "publish")
        landed = len(instance.get_runs(dg.RunsFilter(job_name="land")))
    found = pruned(home, timedelta(hours=1), keep_runs=3)
    with opened(home) as instance:
        published = instance.get_runs(dg.RunsFilter(job_name="publish"))
        still_landed = len(instance.get_runs(dg.RunsFilter(job_name="land")))
    assert len(published) == 3
    assert found["Dagster runs"].count == 3 + landed - still_landed


def test_the_newest_event_keeps_its_number(home: Home) -> None:
    """SQLite gives the number of a deleted newest row to the next one; sensors would miss it."""
    with opened(home) as instance:
        run(instance, "publish")
        last_run = run(instance, "land", "a")
        last_event = instance.event_log_storage.get_maximum_record_id()
    pruned(home, VERY_MUCH_LATER)
    with opened(home) as instance:
        assert instance.has_run(last_run)
        assert instance.event_log_storage.get_maximum_record_id() == last_event


def test_a_dry_run_counts_and_deletes_nothing(home: Home) -> None:
    databases = run_databases(home)
    planned = pruned(home, MUCH_LATER, dry_run=True)
    assert run_databases(home) == databases
    assert planned == pruned(home, MUCH_LATER)
    assert planned["Dagster runs"].count == 4


def test_captured_output_goes_with_its_run(home: Home) -> None:
    with opened(home) as instance:
        runs = [each.run_id for each in instance.get_runs()]
    for run_id in runs:
        (home.dagster / "storage" / run_id / "compute_logs").mkdir(parents=True)
    pruned(home, MUCH_LATER)
    left = {path.name for path in (home.dagster / "storage").iterdir()}
    assert left == run_databases(home) < set(runs)


def test_the_database_of_a_run_without_a_record_goes_after_a_day(home: Home) -> None:
    with opened(home) as instance:
        run_id = instance.get_runs(dg.RunsFilter(job_name="theirs"))[-1].run_id
        instance.delete_run(run_id)
    assert run_id in run_databases(home)
    pruned(home, timedelta(hours=1))
    assert run_id in run_databases(home)
    old = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(home.dagster / "history" / "runs" / f"{run_id}.db", (old, old))
    pruned(home, timedelta(hours=1))
    assert run_id not in run_databases(home)


def test_runs_of_an_unfinished_backfill_stay(home: Home) -> None:
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

    with opened(home) as instance:
        job = DEFINITIONS.resolve_job_def("land")
        done = job.execute_in_process(
            instance=instance, partition_key="a", tags={"dagster/backfill": "unfinished"}
        )
        run(instance, "land", "a")
        instance.add_backfill(
            PartitionBackfill(
                backfill_id="unfinished",
                status=BulkActionStatus.REQUESTED,
                from_failure=False,
                tags={},
                backfill_timestamp=0.0,
                asset_selection=[dg.AssetKey("landed")],
            )
        )
    pruned(home, VERY_MUCH_LATER)
    with opened(home) as instance:
        assert instance.has_run(done.run_id)
        instance.update_backfill(
            instance.get_backfills()[0].with_status(BulkActionStatus.COMPLETED_SUCCESS)
        )
    pruned(home, VERY_MUCH_LATER)
    with opened(home) as instance:
        assert not instance.has_run(done.run_id)
