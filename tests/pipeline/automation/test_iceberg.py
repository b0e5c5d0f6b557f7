"""The asset `iceberg_tables`: off by default, and one run for each publication with a change."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
from pyiceberg.catalog.sql import SqlCatalog

from pipeline.build import build_definitions
from pipeline.settings import Settings
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.test_cli import ROOT, environment
from tests.warehouse.test_iceberg import EQUAL, count_differences

NAME = dg.AssetKey("iceberg_tables")


def merge(settings: Settings, instance: dg.DagsterInstance) -> None:
    job = build_definitions(settings).resolve_job_def("merge")
    assert job.execute_in_process(instance=instance, run_config=QUIET).success


def test_without_the_setting_there_is_no_asset_and_no_sensor(tmp_path: Path) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    assert NAME not in repository.asset_graph.get_all_asset_keys()
    assert not repository.has_sensor_def("iceberg")
    repository = build_definitions(settings_of(tmp_path, iceberg="team")).get_repository_def()
    assert NAME in repository.asset_graph.get_all_asset_keys()
    sensor = repository.get_sensor_def("iceberg")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_a_publication_with_a_change_requests_one_run(tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    settings = small.settings.model_copy(update={"iceberg": "team"})
    definitions, cursor = build_definitions(settings), None
    with dg.DagsterInstance.ephemeral() as instance:
        fired = []
        for hour, title in enumerate(("", "Listing", "Listing", "Listing moved")):
            if title:
                event = f'{{"id": "a", "title": "{title}", "date": "2026-04-01T00:00:00Z"}}'
                body = f'{{"data": [{event}]}}'.encode()
                small.land("events", at=NOW + hour * DAY / 24, body=body)
                merge(settings, instance)
            result = dg.evaluate_automation_conditions(
                definitions,
                instance=instance,
                asset_selection=dg.AssetSelection.assets(NAME),
                cursor=cursor,
            )
            cursor = result.cursor
            fired.append(result.total_requested)
            if result.total_requested:
                instance.report_runless_asset_event(dg.AssetMaterialization(NAME))
    assert fired == [0, 1, 0, 1]


def test_the_asset_writes_to_the_catalog_of_the_users_configuration(tmp_path: Path) -> None:
    home, lake = tmp_path / "home", tmp_path / "lake"
    lake.mkdir()
    small = SmallHome(home)
    small.land()
    with dg.DagsterInstance.ephemeral() as instance:
        merge(small.settings, instance)
    options = {"uri": f"sqlite:///{lake}/catalog.sqlite", "warehouse": f"file://{lake}"}
    found = {f"PYICEBERG_CATALOG__TEAM__{name.upper()}": text for name, text in options.items()}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dagster", "asset", "materialize"),
            *("--select", "iceberg_tables", "-m", "pipeline.definitions"),
        ],
        cwd=ROOT,
        env={**environment(home), **found, "ALMANAC_ICEBERG": "team"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, done.stderr
    with SqlCatalog("team", **options) as catalog:
        assert count_differences(home / "warehouse.duckdb", catalog) == EQUAL
