"""The definitions that Dagster loads: complete, without output and without side effects."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from pydantic import SecretStr
from pyiceberg.catalog.sql import SqlCatalog

from almanac.core.timestamps import utc_now
from application.cli.ui import _prepare
from assets.layout import Layout
from assets.published_tables import PUBLISHED
from pipeline.automation.health import HEALTH
from pipeline.build import build_definitions, build_resources
from pipeline.settings import Settings
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.small_home import NOW, SmallHome
from tests.test_cli import ROOT, environment
from tests.warehouse.test_iceberg import EQUAL, count_differences
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
        env={**environment(tmp_path / "home"), "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "home").exists()


SNAPSHOT = Path(__file__).with_name("definitions.txt")


def describe(repository: dg.RepositoryDefinition) -> Iterator[str]:
    """Yield a line for each property of each definition; dates of partitions change each day."""
    graph = repository.asset_graph
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        days = node.partitions_def
        deps = [parent.to_user_string() for parent in node.parent_keys]
        lists = {"group": [node.group_name], "kinds": node.kinds, "owners": node.owners}
        lists |= {"pool": node.pools, "deps": deps}
        yield f"asset {key.to_user_string()}"
        yield from (f"  {name}: {', '.join(sorted(lists[name]))}" for name in lists if lists[name])
        if isinstance(days, dg.TimeWindowPartitionsDefinition):
            policy = node.backfill_policy
            single = policy is not None and policy.policy_type.value == "SINGLE_RUN"
            yield f"  partitions: {days.cron_schedule}{', a range is one run' if single else ''}"
        if node.automation_condition is not None:
            yield f"  automation: {node.automation_condition.get_label()}"
    for check in sorted(graph.asset_check_keys):
        yield f"check {check.to_user_string()}"
    for job in sorted(repository.get_all_jobs(), key=lambda job: job.name):
        if not job.name.startswith("__"):
            steps = ", ".join(sorted(step.name for step in job.nodes))
            yield f"job {job.name}, {job.executor_def.name}: {steps}"
    for schedule in sorted(repository.schedule_defs, key=lambda schedule: schedule.name):
        when = f"{schedule.cron_schedule} {schedule.execution_timezone}"
        status = schedule.default_status.value
        yield f"schedule {schedule.name}, {status}, {when}: {schedule.job_name}"
    for sensor in sorted(repository.sensor_defs, key=lambda sensor: sensor.name):
        jobs = ", ".join(target.job_name for target in sensor.targets) or "no job"
        every = f"every {sensor.minimum_interval_seconds} s"
        yield f"sensor {sensor.name}, {sensor.default_status.value}, {every}: {jobs}"


def test_the_definitions_are_those_of_the_snapshot(tmp_path: Path) -> None:
    """A change of the definitions is a change of definitions.txt: SNAPSHOT_WRITE=1 writes it."""
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    found = "".join(f"{line}\n" for line in describe(repository))
    if os.environ.get("SNAPSHOT_WRITE"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text()


@pytest.mark.parametrize(
    ("words", "days"),
    [
        ("dagster job execute -m pipeline.definitions -j daily", {NOW.date().isoformat()}),
        ("dg launch --job daily", {NOW.date().isoformat()}),
        ("dagster api grpc --module-name pipeline.definitions", set()),
    ],
)
def test_a_command_runs_the_job_daily_of_today_without_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, days: set[str]
) -> None:
    """In a server the day would grow old, and stand beside the range of a backfill."""
    monkeypatch.setattr(sys, "argv", words.split())
    job = build_definitions(settings_of(tmp_path), clock=lambda: NOW).resolve_job_def("daily")
    assert {value for name, value in job.run_tags.items() if "partition" in name} == days


def test_every_asset_is_described(tmp_path: Path) -> None:
    graph = build_definitions(settings_of(tmp_path)).resolve_asset_graph()
    assert {table.name for table in PUBLISHED} <= {
        key.path[-1] for key in graph.get_all_asset_keys()
    }
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.tags["domain"] == "crypto-events"
        if key == dg.AssetKey(HEALTH):
            continue
        assert node.code_version
        assert node.metadata["dagster/code_references"]
    for table in PUBLISHED:
        schema = graph.get(dg.AssetKey(table.name)).metadata["dagster/column_schema"]
        assert all(column.description for column in schema.columns)


def test_a_resource_can_be_replaced(tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    resources = build_resources(Layout(), settings_of(tmp_path), clock=utc_now, home=other)
    assert resources["home"] is other


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


def test_the_setting_adds_an_asset_and_a_sensor_that_is_on(tmp_path: Path) -> None:
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
        monkeypatch.setattr("warehouse.iceberg.load_named_catalog", configured.__getitem__)
        merge(small.settings, instance)
        job = build_definitions(small.settings).resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance, asset_selection=[NAME], run_config=QUIET)
        assert done.success
        assert count_differences(small.home.warehouse, catalog) == EQUAL
