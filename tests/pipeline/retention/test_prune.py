"""Pruning an instance: what is deleted, and what the pages of assets show before and after."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import pytest

from pipeline.retention.events import EventLog
from pipeline.retention.owned import OWNER_TAG
from pipeline.retention.runs import needed_runs
from tests.pipeline.retention.history import (
    DEFINITIONS,
    KEPT,
    LABEL,
    LATER,
    MUCH_LATER,
    PARTS,
    Shown,
    bytes_of,
    company,
    landed,
    opened,
    pruned,
    run,
    run_databases,
    table,
)
from warehouse.home import Home


def test_materialised_partitions_and_their_latest_metadata_are_the_same_after_a_prune(
    home: Home, shown: Shown
) -> None:
    size = bytes_of(home)
    found = pruned(home, MUCH_LATER)
    with opened(home) as instance:
        after = Shown.of(instance)
        left = [each.job_name for each in instance.get_runs()]
    assert after == shown
    assert shown.partitions["landed"] == set(PARTS.get_partition_keys())
    # The newest run of each job stays, and all of the company's.
    assert sorted(left) == ["land", "publish", "theirs", "theirs"]
    assert found["Dagster runs"].count == found["run databases"].count == 7
    assert found["run databases"].bytes > 7 * 100_000
    assert size - bytes_of(home) > 7 * 100_000
    assert len(run_databases(home)) == 4
    # A kill while it is made would leave it incomplete.
    assert not (home.dagster / "history" / "runs" / ".db").exists()


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_a_prune_reports_nothing_anew_so_that_no_eager_asset_downstream_fires(home: Home) -> None:
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


def test_a_second_prune_deletes_what_was_kept_as_the_latest_and_no_longer_is(home: Home) -> None:
    pruned(home, MUCH_LATER)
    assert pruned(home, MUCH_LATER)["superseded events"].count == 0
    with opened(home) as instance:
        for part in PARTS.get_partition_keys():
            run(instance, "land", part)
        run(instance, "publish")
        before = Shown.of(instance)
    found = pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert Shown.of(instance) == before
        materialised = instance.fetch_materializations(landed.key, limit=100).records
    assert found["superseded events"].count > 0
    # The kept one of each part, and nothing of runs that are gone.
    assert len(materialised) == len(PARTS.get_partition_keys())


def test_failed_runs_are_kept_longer(home: Home) -> None:
    failures = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
    with opened(home) as instance:
        run(instance, "land", "a")
    assert pruned(home, LATER)["Dagster runs"].count > 0
    with opened(home) as instance:
        assert len(instance.get_runs(failures)) == 1
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert instance.get_runs(failures) == []


def test_runs_in_progress_and_young_runs_stay(home: Home) -> None:
    with opened(home) as instance:
        started = instance.create_run_for_job(
            DEFINITIONS.resolve_job_def("land"), status=dg.DagsterRunStatus.STARTED
        )
        starting = instance.create_run_for_job(
            DEFINITIONS.resolve_job_def("land"), status=dg.DagsterRunStatus.STARTING
        )
        run(instance, "theirs")
    databases = run_databases(home)
    assert all(each.count == 0 for each in pruned(home, timedelta(days=9)).values())
    assert run_databases(home) == databases
    pruned(home, timedelta(days=1_000))
    with opened(home) as instance:
        assert instance.has_run(started.run_id)
        assert instance.has_run(starting.run_id)


def test_in_an_instance_of_others_only_labelled_runs_and_runs_of_own_assets_go(home: Home) -> None:
    with opened(home) as instance:
        job = DEFINITIONS.resolve_job_def("land")
        of_other_home = job.execute_in_process(
            instance=instance, partition_key="a", tags={OWNER_TAG: "other"}
        ).run_id
        unlabelled = dg.define_asset_job("land", ["landed"]).resolve(
            asset_graph=DEFINITIONS.resolve_asset_graph()
        )
        same_name = unlabelled.execute_in_process(instance=instance, partition_key="a").run_id
        by_hand = _from_the_page(instance, table.key)
        with_theirs = _from_the_page(instance, table.key, company.key)
        _from_the_page(instance, table.key)
        run(instance, "land", "a")
        run(instance, "theirs")
    pruned(home, MUCH_LATER, own=False)
    with opened(home) as instance:
        assert not instance.has_run(by_hand)
        assert all(instance.has_run(run_id) for run_id in (of_other_home, same_name, with_theirs))
        labelled = instance.get_runs(dg.RunsFilter(tags={OWNER_TAG: LABEL}))
    assert len(labelled) == 2
    # In the home's own instance a job of that name is the home's, of a version without labels.
    pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert not instance.has_run(same_name)
        assert all(instance.has_run(run_id) for run_id in (of_other_home, with_theirs))


def _from_the_page(instance: dg.DagsterInstance, *assets: dg.AssetKey) -> str:
    job = DEFINITIONS.resolve_implicit_global_asset_job_def()
    return instance.create_run_for_job(
        job.get_subset(asset_selection=set(assets)),
        asset_selection=frozenset(assets),
        status=dg.DagsterRunStatus.SUCCESS,
    ).run_id


def test_at_most_a_number_of_runs_is_kept_however_young(home: Home) -> None:
    few = replace(KEPT, runs_max=3)
    found = pruned(home, timedelta(hours=1), retention=few)
    with opened(home) as instance:
        left = instance.get_runs(dg.RunsFilter(tags={OWNER_TAG: LABEL}))
    assert found["Dagster runs"].count == 5
    assert sorted(each.job_name for each in left) == ["land", "land", "land", "publish"]


def test_nothing_is_deleted_that_has_the_newest_id(home: Home) -> None:
    with opened(home) as instance:
        first = run(instance, "publish")
        last = run(instance, "land", "a")
        event = instance.all_logs(first)[-1]
        # As if it had ended after the other.
        instance.event_log_storage.store_event(event)
        needed = needed_runs(instance, EventLog(instance, dry_run=False))
        last_event = instance.event_log_storage.get_maximum_record_id()
    assert needed == {first, last}
    pruned(home, timedelta(days=1_000))
    with opened(home) as instance:
        assert instance.has_run(first)
        assert instance.has_run(last)
        assert instance.event_log_storage.get_maximum_record_id() == last_event


def test_dry_run_counts_and_deletes_nothing(home: Home) -> None:
    databases = run_databases(home)
    planned = pruned(home, MUCH_LATER, dry_run=True)
    assert run_databases(home) == databases
    done = pruned(home, MUCH_LATER)
    for kind in ("Dagster runs", "events", "run databases"):
        assert planned[kind] == done[kind]
    assert done["Dagster runs"].count == 7


def test_events_without_a_run_go_once_they_are_old_and_not_the_latest(home: Home) -> None:
    with opened(home) as instance:
        for rows in (1, 2, 3):
            instance.report_runless_asset_event(
                dg.AssetMaterialization(landed.key, partition="a", metadata={"rows": rows})
            )
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(table.key, "sound", passed=True, metadata={"rows": rows})
            )
        before = Shown.of(instance)
    assert pruned(home, timedelta(days=9))["superseded events"].count == 0
    found = pruned(home, MUCH_LATER)
    with opened(home) as instance:
        assert Shown.of(instance) == before
        storage = instance.event_log_storage
        check = dg.AssetCheckKey(table.key, "sound")
        results = storage.get_asset_check_execution_history(check, limit=10)
    # Two materialisations; of each of two results the record and its event.
    assert found["superseded events"].count == 2 + 2 * 2
    # The latest, and that of the newest run of the job, which stays.
    assert [bool(result.run_id) for result in results] == [False, True]
    index, without_run = _events_without_run(home)
    assert index == 2
    assert without_run == 0


def _events_without_run(home: Home) -> list[int]:
    """Return how many events without a run are in the index, and in the database of their own."""
    counts = []
    for name in ("index.db", ".db"):
        with closing(sqlite3.connect(home.dagster / "history" / "runs" / name)) as store:
            rows = store.execute("SELECT COUNT(*) FROM event_logs WHERE run_id = ''")
            counts += [int(count) for (count,) in rows]
    return counts


def test_runs_of_an_unfinished_backfill_stay(home: Home) -> None:
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

    with opened(home) as instance:
        job = DEFINITIONS.resolve_job_def("land")
        done = job.execute_in_process(
            instance=instance, partition_key="a", tags={"dagster/backfill": "unfinished"}
        )
        run(instance, "land", "b")
        instance.add_backfill(
            PartitionBackfill(
                backfill_id="unfinished",
                status=BulkActionStatus.REQUESTED,
                from_failure=False,
                tags={},
                backfill_timestamp=0.0,
                asset_selection=[landed.key],
            )
        )
    pruned(home, timedelta(days=1_000))
    with opened(home) as instance:
        assert instance.has_run(done.run_id)
        instance.update_backfill(
            instance.get_backfills()[0].with_status(BulkActionStatus.COMPLETED_SUCCESS)
        )
    assert pruned(home, timedelta(days=1_000))["backfills"].count == 1
    with opened(home) as instance:
        assert not instance.has_run(done.run_id)


@pytest.mark.parametrize("own", [True, False])
def test_databases_without_a_run_go_in_the_own_instance_only(home: Home, own: bool) -> None:
    with opened(home) as instance:
        left = instance.get_runs(dg.RunsFilter(job_name="theirs"))[-1].run_id
        instance.delete_run(left)
    found = pruned(home, timedelta(days=2), own=own)
    assert (left in run_databases(home)) is not own
    assert found.get("databases of deleted runs", None) is None or own


def test_retention_of_the_tests_is_in_days() -> None:
    assert KEPT.runs_days < LATER.days < KEPT.failed_runs_days < MUCH_LATER.days
