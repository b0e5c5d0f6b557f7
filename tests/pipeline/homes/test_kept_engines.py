"""Engines of Dagster's stores that are kept during a run: the same records, and nothing left."""

import atexit
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.sql import create_engine

from pipeline.instance import instance_of
from pipeline.runs.kept_engines import kept_engines, read_scripts_once
from tests.pipeline.homes_in_days import QUIET
from warehouse.home import Home

RUNS = 6
"""More than engines are kept."""


@dg.asset
def asset(context: dg.AssetExecutionContext) -> None:
    for number in range(3):
        context.log_event(dg.AssetMaterialization("other", metadata={"number": number}))


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with instance_of(Home(tmp_path_factory.mktemp("home"))) as instance:
        with kept_engines():
            for _ in range(RUNS):
                assert dg.materialize([asset], instance=instance, run_config=QUIET).success
        yield instance


def test_every_run_and_event_is_recorded(instance: dg.DagsterInstance) -> None:
    runs = instance.get_runs()
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * RUNS
    assert len(instance.fetch_materializations(dg.AssetKey("other"), limit=99).records) == 3 * RUNS
    for run in runs:
        kinds = [log.dagster_event.event_type_value for log in instance.all_logs(run.run_id)]
        assert kinds.count("ASSET_MATERIALIZATION") == 4


def test_afterwards_each_store_is_one_file_and_engines_are_made_as_before(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    folder = Path(instance.root_directory)
    assert list(folder.rglob("*.db"))
    assert not list(folder.rglob("*.db-wal"))
    for user in (sqlite_event_log, sqlite_run_storage):
        assert user.create_engine is create_engine


def test_after_an_error_engines_are_made_as_before() -> None:
    with pytest.raises(RuntimeError), kept_engines():
        assert sqlite_event_log.create_engine is not create_engine
        raise RuntimeError
    assert sqlite_event_log.create_engine is create_engine


def test_a_code_server_that_opens_the_instance_for_each_tick_keeps_nothing_of_it(
    instance: dg.DagsterInstance,
) -> None:
    def opened() -> int:
        for _ in range(3):
            with dg.DagsterInstance.from_ref(instance.get_ref()) as again:
                assert len(again.get_runs()) == RUNS
        return atexit._ncallbacks()

    read_scripts_once()
    assert opened() == opened()
