"""The definitions that Dagster loads: complete, without output and without side effects."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pydantic import SecretStr
from pyiceberg.catalog.sql import SqlCatalog

from application.cli.ui import _prepare
from assets.landed import COMPLETE_DAY
from assets.layout import Layout
from assets.published_tables import PUBLISHED
from pipeline.automation.health import HEALTH
from pipeline.automation.prune import prune_runs
from pipeline.build import build_definitions, build_resources
from pipeline.health.facts import DAILY_FEEDS
from pipeline.settings import Settings
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.test_cli import ROOT, environment
from tests.warehouse.test_iceberg import EQUAL, count_differences
from warehouse.clock import utc_now
from warehouse.home import Home

WATCHED = """
import sys
touched = []
def watch(event, args):
    if event in ("socket.connect", "socket.bind", "os.mkdir"):
        touched.append((event, args))
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        touched.append((event, args[0]))
sys.addaudithook(watch)
import os, pipeline.definitions
pipeline.definitions.almanac()
assert os.umask(0o077) == 0o077, "private files"
from pipeline.build import build_definitions
from pipeline.settings import read_settings
import dagster as dg
definitions = build_definitions(read_settings())
assert touched == [], touched
dg.Definitions.validate_loadable(definitions)
"""


def test_loading_the_definitions_has_no_warning_and_touches_no_file_or_network(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", WATCHED],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "home").exists()


def test_every_table_is_an_asset_and_every_asset_has_a_description(tmp_path: Path) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    graph = repository.asset_graph
    names = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert {table.name for table in PUBLISHED} <= names
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.kinds
        assert list(node.owners) == ["team:almanac"]
        assert node.tags["domain"] == "crypto-events"
        if key == dg.AssetKey(HEALTH):
            continue
        assert node.group_name in ("landing", "history", "warehouse")
        assert node.code_version
        assert node.metadata["dagster/code_references"]
        schema = node.metadata["dagster/column_schema"]
        assert all(column.description for column in schema.columns)


def test_every_pulled_feed_has_a_check_of_each_day_and_retries_and_no_freshness_policy(
    tmp_path: Path,
) -> None:
    definitions = build_definitions(settings_of(tmp_path))
    graph = definitions.resolve_asset_graph()
    assert [key for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy] == []
    nodes = {node.name: node for node in definitions.resolve_job_def("daily").nodes}
    for name in (f"landed_{feed}" for feed in DAILY_FEEDS):
        check = graph.get(dg.AssetCheckKey(dg.AssetKey(name), COMPLETE_DAY))
        assert isinstance(check.partitions_def, dg.DailyPartitionsDefinition)
        step = nodes[name].definition
        assert isinstance(step, dg.OpDefinition)
        assert step.retry_policy is not None and step.retry_policy.max_retries == 3


PREFIXES = {"key_prefix": ("market", "events"), "group_prefix": "cal_", "name_prefix": "cal_"}


def test_prefixes_are_on_every_key_group_and_name(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, **PREFIXES, alert_url="http://127.0.0.1:9/x")
    repository = build_definitions(settings).get_repository_def()
    for key in repository.asset_graph.get_all_asset_keys():
        assert key.path[:-1] == ["market", "events"]
        assert repository.asset_graph.get(key).group_name.startswith("cal_")
    named = [
        *(job for job in repository.job_names if not job.startswith("__")),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
        *repository.get_top_level_resources(),
    ]
    assert len(named) > 12
    assert [name for name in named if not name.startswith("cal_")] == []


def test_a_resource_can_be_replaced_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    resources = build_resources(Layout(), settings_of(tmp_path), clock=utc_now, home=other)
    assert resources["home"] is other
    with pytest.raises(ValueError, match="there is no resource 'catalogue'"):
        build_definitions(settings_of(tmp_path), catalogue=1)


def test_the_workspace_of_the_repository_names_the_same_module_as_that_of_a_home(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.dagster.mkdir()
    (path,) = _prepare(home)
    (place,) = yaml.safe_load(path.read_text())["load_from"]
    assert place["python_module"].pop("working_directory") == str(ROOT)
    assert yaml.safe_load((ROOT / "workspace.yaml").read_text()) == {"load_from": [place]}
    (home.dagster / "workspace.yaml").write_text("load_from: []")
    assert _prepare(home) == [home.dagster / "workspace.yaml", path]


def test_resources_show_their_fields_and_no_key(tmp_path: Path) -> None:
    address = {"base_url": "https://catalog.example", "api_key": SecretStr("secret-key")}
    settings = settings_of(tmp_path, plan="elite", **address)
    repository = build_definitions(settings).get_repository_def()
    shown = {
        name: resource.config_schema.as_field().default_value
        for name, resource in repository.get_top_level_resources().items()
    }
    assert shown["home"] == {"folder": str(tmp_path)}
    assert shown["catalog"]["base_address"] == "https://catalog.example"
    assert shown["catalog_for_polls"]["work"] == "polls"
    assert "secret-key" not in str(shown)
    wrong = settings_of(tmp_path, **{**address, "base_url": "https://me:pass@catalog.example"})
    assert "pass@" not in str(build_definitions(wrong).resources)


NAME = dg.AssetKey("iceberg_tables")


def merge(settings: Settings, instance: dg.DagsterInstance) -> None:
    job = build_definitions(settings).resolve_job_def("merge")
    assert job.execute_in_process(instance=instance, run_config=QUIET).success


def test_without_the_setting_there_is_no_asset_and_no_sensor(tmp_path: Path) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    assert not repository.has_sensor_def("report")
    assert NAME not in repository.asset_graph.get_all_asset_keys()
    assert not repository.has_sensor_def("iceberg")
    repository = build_definitions(settings_of(tmp_path, iceberg="team")).get_repository_def()
    assert NAME in repository.asset_graph.get_all_asset_keys()
    sensor = repository.get_sensor_def("iceberg")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_the_asset_writes_to_the_catalog_of_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    small = SmallHome(tmp_path / "home", iceberg="team")
    small.land()
    options = {"uri": f"sqlite:///{lake}/catalog.sqlite", "warehouse": f"file://{lake}"}
    with SqlCatalog("team", **options) as catalog, dg.DagsterInstance.ephemeral() as instance:
        # pyiceberg reads its configuration when it is imported.
        configured = {"team": (catalog, "almanac")}
        monkeypatch.setattr("assets.iceberg_tables.load_named_catalog", configured.__getitem__)
        merge(small.settings, instance)
        job = build_definitions(small.settings).resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance, asset_selection=[NAME], run_config=QUIET)
        assert done.success
        assert count_differences(small.home.warehouse, catalog) == EQUAL


ALWAYS = {"event_changes", "batches", "coverage"}


@dg.asset(deps=["events"], automation_condition=dg.AutomationCondition.eager())
def report() -> None:
    """An asset of a company, which follows `events`."""


def listed(title: str) -> bytes:
    event = {"id": "a", "title": title, "date": "2026-04-01T00:00:00Z"}
    return json.dumps({"data": [event]}).encode()


def test_it_runs_once_for_each_change_of_events_also_after_old_runs_are_deleted(
    tmp_path: Path,
) -> None:
    small, next_year = SmallHome(tmp_path), datetime.now(UTC) + 400 * DAY
    defs = dg.Definitions.merge(build_definitions(small.settings), dg.Definitions(assets=[report]))
    cursor = None

    def merge_all(**given: Any) -> set[str]:
        """Merge what is landed; return the materialised tables and the evaluated checks."""
        done = defs.resolve_job_def("merge").execute_in_process(
            instance=instance, run_config=QUIET, **given
        )
        evaluated = done.get_asset_check_evaluations()
        checks = {f"{each.asset_key.path[-1]}.{each.check_name}" for each in evaluated}
        return checks | {
            event.asset_key.to_user_string()
            for event in done.all_events
            if event.is_step_materialization and event.asset_key is not None
        }

    def pull(title: str, hour: int) -> set[str]:
        small.land("events", at=NOW + timedelta(hours=hour), body=listed(title))
        return merge_all()

    def fired() -> int:
        """Evaluate the condition as the daemon does, and record what it requests as done."""
        nonlocal cursor
        result = dg.evaluate_automation_conditions(
            defs,
            instance=instance,
            asset_selection=dg.AssetSelection.assets("report"),
            cursor=cursor,
        )
        cursor = result.cursor
        if result.total_requested:
            instance.report_runless_asset_event(dg.AssetMaterialization("report"))
        return result.total_requested

    with dg.DagsterInstance.ephemeral() as instance:
        assert fired() == 0
        assert "events" in pull("Listing", 0)
        assert [fired(), fired()] == [1, 0]
        # A daily pull that finds nothing new evaluates the checks of tables that did not change.
        unchanged = pull("Listing", 1)
        assert {name for name in unchanged if "." not in name} == ALWAYS
        assert "events.unique_events" in unchanged
        assert fired() == 0
        prune_runs(small.home, small.settings, next_year - DAY, instance)
        assert {name for name in pull("Listing", 2) if "." not in name} == ALWAYS
        assert fired() == 0
        assert "events" in pull("Listing moved", 3)
        assert [fired(), fired()] == [1, 0]
        # Dagster fails a backfill of which a run succeeded without a materialisation.
        assert merge_all(tags={"dagster/backfill": "b"}) >= {table.name for table in PUBLISHED}
