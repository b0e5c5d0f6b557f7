"""The definitions that Dagster loads: complete, without output and without side effects."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from pydantic import SecretStr

from application.cli.ui import _prepare
from assets.layout import Layout
from assets.published_tables import PUBLISHED
from pipeline.build import build_definitions, build_resources
from pipeline.instance import instance_of
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import run_sandbox_days, settings_of
from tests.test_cli import ROOT, environment
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
import pipeline.definitions
from pipeline.build import build_definitions
from pipeline.settings import read_settings
import dagster as dg
definitions = build_definitions(read_settings())
assert touched == [], touched
dg.Definitions.validate_loadable(definitions)
"""


def test_the_definitions_are_loadable(tmp_path: Path) -> None:
    dg.Definitions.validate_loadable(build_definitions(settings_of(tmp_path)))


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


def test_the_definitions_module_stays_about_ten_lines() -> None:
    lines = (ROOT / "pipeline/definitions.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 12


def test_every_table_is_an_asset_and_every_asset_has_a_description(tmp_path: Path) -> None:
    repository = build_definitions(settings_of(tmp_path)).get_repository_def()
    graph = repository.asset_graph
    names = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert {table.name for table in PUBLISHED} <= names
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.group_name in ("landing", "history", "warehouse")
        assert node.kinds
        assert list(node.owners) == ["team:almanac"]
        assert node.tags["domain"] == "crypto-events"
        assert node.code_version
        assert node.metadata["dagster/code_references"]
        schema = node.metadata["dagster/column_schema"]
        assert all(column.description for column in schema.columns)


def test_every_source_of_a_column_is_a_column_of_an_asset(tmp_path: Path) -> None:
    graph = build_definitions(settings_of(tmp_path)).resolve_asset_graph()
    nodes = {key: graph.get(key) for key in graph.get_all_asset_keys()}
    columns = {
        key: {column.name for column in node.metadata["dagster/column_schema"].columns}
        for key, node in nodes.items()
    }
    traced = set()
    for key, node in nodes.items():
        if (lineage := node.metadata.get("dagster/column_lineage")) is None:
            continue
        for name, sources in lineage.deps_by_column.items():
            traced.add((key.to_user_string(), name))
            assert name in columns[key]
            assert all(source.column_name in columns[source.asset_key] for source in sources)
    assert {("events", "title"), ("event_versions", "known_to"), ("coins", "rank")} <= traced
    assert {("event_changes", "title"), ("event_coins", "symbol")} <= traced


def test_every_table_depends_on_all_days_of_the_changes(tmp_path: Path) -> None:
    graph = build_definitions(settings_of(tmp_path)).resolve_asset_graph()
    for table in PUBLISHED:
        mapping = graph.get_partition_mapping(dg.AssetKey(table.name), dg.AssetKey("event_changes"))
        assert isinstance(mapping, dg.AllPartitionMapping)


def test_every_pulled_feed_has_a_freshness_policy_and_retries(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path))
    graph = definitions.resolve_asset_graph()
    fresh = {
        key.to_user_string()
        for key in graph.get_all_asset_keys()
        if graph.get(key).freshness_policy is not None
    }
    pulled = {f"landed_{feed}" for feed in ("export", "events", "cancellations", "coins")}
    assert pulled | {"event_changes", "batches", "coverage", "coin_snapshots"} <= fresh
    nodes = {node.name: node for node in definitions.resolve_job_def("daily").nodes}
    for name in pulled:
        policy = nodes[name].definition.retry_policy
        assert policy is not None and policy.max_retries == 3


def test_checks_of_rows_block_and_warnings_do_not(tmp_path: Path) -> None:
    graph = build_definitions(settings_of(tmp_path)).resolve_asset_graph()
    blocking = {
        (key.asset_key.to_user_string(), key.name): graph.get_check_spec(key).blocking
        for key in graph.asset_check_keys
    }
    assert blocking["event_changes", "one_row_per_version"]
    assert blocking["event_versions", "unique_versions"]
    assert not blocking["batches", "none_quarantined"]


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


def test_a_run_with_prefixes_records_every_table_below_them(tmp_path: Path) -> None:
    settings, layout = settings_of(tmp_path, **PREFIXES), Layout(("market", "events"))
    with instance_of(Home(tmp_path)) as instance:
        run_sandbox_days(settings, instance, days=1)
        recorded = set(instance.all_asset_keys())
    assert {layout.key(table.name) for table in PUBLISHED} <= recorded
    assert layout.key("event_changes") in recorded
    assert {tuple(key.path[:-1]) for key in recorded} == {("market", "events")}


def test_a_resource_can_be_replaced_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    resources = build_resources(Layout(), settings_of(tmp_path), clock=utc_now, home=other)
    assert resources["home"] is other
    with pytest.raises(ValueError, match="there is no resource 'catalogue'"):
        build_definitions(settings_of(tmp_path), catalogue=1)


def test_the_instance_is_written_once_and_dagster_accepts_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with instance_of(home) as instance:
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_runtime_seconds == 86_400
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
    path = home.dagster / "dagster.yaml"
    path.write_text(path.read_text().replace("max_retries: 3", "max_retries: 9"))
    with instance_of(home) as instance:
        assert instance.run_retries_max_retries == 9


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
