"""The component in a company's project: `defs.yaml`, prefixes, automation, executor, downstream.

The snippets are those of docs/composing.md.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError
from sqlalchemy import create_engine

from almanac.core.errors import WarehouseError
from almanac.core.timestamps import utc_now
from assets.layout import Layout
from assets.published_tables import PUBLISHED, published_tables
from pipeline.automation.health import PROCESS_TAG
from pipeline.automation.jobs import prune_runs
from pipeline.build import build_resources
from pipeline.component import AlmanacComponent
from pipeline.instance import open_instance
from pipeline.settings import SettingsError, read_settings
from tests.pipeline.homes_in_days import QUIET, settings_of
from tests.pipeline.run_records import start_run
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.test_cli import ROOT
from warehouse.history.merge import merge
from warehouse.home import Home

NAME = "pipeline.component.AlmanacComponent"
ALWAYS = {"event_changes", "batches", "coverage"}
MERGED: dict[str, Any] = {"key_prefix": ["almanac"], "executor": "deployment"}
YAML, PYTHON = (
    re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs/composing.md").read_text(), re.DOTALL)[0]
    for kind in ("yaml", "python")
)
KEY = "canary-4f1d9a77c2"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("ALMANAC_HOME", str(tmp_path)),
        ("ALMANAC_STATE", str(tmp_path / "state")),
        ("DAGSTER_HOME", str(tmp_path)),
        ("CATALOG_URL", "https://catalog.example"),
        ("CATALOG_KEY", KEY),
    ):
        monkeypatch.setenv(name, value)


def listed(title: str) -> bytes:
    event = {"id": "a", "title": title, "date": "2026-04-01T00:00:00Z"}
    return json.dumps({"data": [event]}).encode()


def almanac_in(home: Path, **given: Any) -> dg.Definitions:
    return AlmanacComponent(home=str(home), **given).build_defs()


class NothingStored(dg.IOManager):
    """The storage of a company; Almanac must not hand it anything."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise AssertionError(f"{context.asset_key} was stored")

    def load_input(self, context: dg.InputContext) -> Any:
        raise AssertionError(f"{context.asset_key} was loaded")


@dg.asset(name="events", io_manager_key="frames")
def company_events() -> int:
    return 7


@dg.asset(deps=[dg.AssetKey(["almanac", "upcoming"])], io_manager_key="frames")
def signals(home: dg.ResourceParam[str]) -> str:
    return home


@dg.job(name="daily")
def company_daily() -> None:
    pass


def company(**given: Any) -> dg.Definitions:
    """Return the definitions of a company, which has our names for other things."""
    resources = {
        "home": "of the company",
        "io_manager": NothingStored(),
        "frames": dg.InMemoryIOManager(),
    }
    return dg.Definitions(
        assets=[company_events, signals],
        jobs=[company_daily],
        resources=resources,
        executor=dg.multiprocess_executor,
        **given,
    )


@pytest.fixture(scope="module")
def merged_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a merged batch of each feed."""
    small = SmallHome(tmp_path_factory.mktemp("home"))
    small.land()
    merge(small.home)
    return small.home.root


def test_with_prefixes_they_merge_and_both_have_their_own(tmp_path: Path) -> None:
    merged = dg.Definitions.merge(almanac_in(tmp_path, **MERGED), company())
    repository = merged.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"events", "signals", "almanac/events"} <= keys
    assert {"daily", "almanac_daily"} <= set(repository.job_names)
    resources = repository.get_top_level_resources()
    assert {"home", "almanac_home"} <= resources.keys()
    dg.Definitions.validate_loadable(merged)


def test_a_merged_run_publishes_and_stores_nothing_with_the_company(merged_home: Path) -> None:
    merged = dg.Definitions.merge(almanac_in(merged_home, **MERGED), company())
    with dg.DagsterInstance.ephemeral() as instance:
        done = merged.resolve_job_def("almanac_merge").execute_in_process(instance=instance)
        assert done.success
        # The process of a step is not that of the run, so it must not stand for it.
        run = instance.get_run_by_id(done.run_id)
        assert run is not None and PROCESS_TAG not in run.tags
        recorded = {
            event.asset_key.to_user_string()
            for event in done.all_events
            if event.is_step_materialization and event.asset_key is not None
        }
    assert {f"almanac/{table.name}" for table in PUBLISHED} <= recorded


def test_keys_renamed_from_outside_fail_and_nothing_succeeds_in_silence(merged_home: Path) -> None:
    layout = Layout()
    tables = published_tables(layout)
    renamed = tables.with_attributes(
        asset_key_replacements={key: key.with_prefix("company") for key in tables.keys}
    )
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [renamed],
            resources=build_resources(layout, settings_of(merged_home), clock=utc_now),
            instance=instance,
            raise_on_error=False,
        )
        assert not done.success
        assert not any(instance.get_latest_materialization_event(key) for key in renamed.keys)
    (failed,) = done.get_step_failure_events()
    error = failed.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "key_prefix of AlmanacComponent" in error.cause.message


@contextmanager
def project(text: str, module: str = "") -> Iterator[dg.Definitions]:
    """Yield the definitions of a project with this `defs.yaml` and module."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(component_cls=AlmanacComponent, defs_path="almanac")
        assert yaml.safe_load((folder / "defs.yaml").read_text())["type"] == NAME
        (folder / "defs.yaml").write_text(text)
        (sandbox.defs_folder_path / "week_ahead.py").write_text(module)
        with sandbox.build_all_defs() as definitions:
            yield definitions


def test_one_defs_yaml_adopts_a_home_and_shows_no_key(tmp_path: Path) -> None:
    with project(YAML.replace("/srv/almanac/data", str(tmp_path))) as definitions:
        repository = definitions.get_repository_def()
    graph = repository.asset_graph
    for key in graph.get_all_asset_keys():
        assert key.path[:-1] == ["almanac"]
        assert graph.get(key).group_name.startswith("almanac_")
        assert list(graph.get(key).owners) == ["data@example.com"]
        assert all(pool.startswith("almanac_") for pool in graph.get(key).pools or ())
    named = [
        *(job for job in repository.job_names if not job.startswith("__")),
        *(sensor.name for sensor in repository.sensor_defs if sensor.name.startswith("almanac")),
        *(schedule.name for schedule in repository.schedule_defs),
        *repository.get_top_level_resources(),
    ]
    assert len(named) > 12
    assert [name for name in named if not name.startswith("almanac_")] == []
    catalog = repository.get_top_level_resources()["almanac_catalog"]
    shown = catalog.config_schema.as_field().default_value
    assert shown["base_address"] == "https://catalog.example"
    names = {"api_key": "CATALOG_KEY", "base_url": "CATALOG_URL"}
    component, settings = AlmanacComponent(environment=names), read_settings(None, names)
    assert settings.api_key is not None and settings.api_key.get_secret_value() == KEY
    metadata = [graph.get(key).metadata for key in graph.get_all_asset_keys()]
    assert KEY not in repr((component, settings, shown, named, metadata))


def test_the_component_is_registered_with_dg() -> None:
    declared = tomllib.loads((ROOT / "application/pyproject.toml").read_text())["project"]
    (module,) = declared["entry-points"]["dagster_dg_cli.registry_modules"].values()
    assert import_module(module).AlmanacComponent is AlmanacComponent
    assert f"{module}.AlmanacComponent" == NAME


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("automation: [pols]", "no schedule or sensor 'pols'.*daily_schedule.*polls"),
        (
            "environment: {api_key: canary-4f1d9a77c2}",
            "api_key is not a setting, or",
        ),
        ("environment: {api_keys: CATALOG_KEY}", "api_keys is not a setting"),
        ("key_prefix: a/b-c", "a_b-c_"),
        ("executor: celery", "in_process"),
    ],
)
def test_a_wrong_attribute_is_refused_with_the_reason(attributes: str, reason: str) -> None:
    with pytest.raises(
        (SettingsError, ValidationError, dg.DagsterError), match=f"(?s){reason}"
    ) as caught:
        AlmanacComponent.resolve_from_yaml(attributes).build_defs()
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("automation", "on"),
    [("none", set()), (["polls", "daily_schedule"], {"polls", "daily_schedule"})],
)
def test_only_the_named_schedules_and_sensors_are_on(
    tmp_path: Path, automation: Any, on: set[str]
) -> None:
    repository = almanac_in(tmp_path, automation=automation, key_prefix="a/b").get_repository_def()
    running = {
        definition.name.removeprefix("a_b_")
        for definition in (*repository.schedule_defs, *repository.sensor_defs)
        if definition.default_status.value == "RUNNING"
    }
    assert running == on


def test_without_dagster_home_or_a_limit_of_the_pool_it_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.warns(UserWarning, match="DAGSTER_HOME is not set"):
        definitions = almanac_in(tmp_path, key_prefix="almanac")
    job = definitions.resolve_job_def("almanac_daily")

    def warned() -> bool:
        """Run a daily job without a partition, which fails before it sends a request."""
        done = job.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)
        assert not done.success
        logged = str(instance.all_logs(done.run_id))
        assert "Cannot access partition_key" in logged
        return "The pool almanac_catalog has no limit" in logged

    assert warned()
    instance.event_log_storage.set_concurrency_slots("almanac_catalog", 1)
    assert not warned()


def test_an_asset_downstream_runs_once_for_each_change_of_events(tmp_path: Path) -> None:
    """Also after old runs are deleted; the sensor that evaluates it is on."""
    small, next_year, cursor = SmallHome(tmp_path), datetime.now(UTC) + 400 * DAY, None
    text, module = (each.replace("/srv/almanac/data", str(tmp_path)) for each in (YAML, PYTHON))
    with ExitStack() as held:
        defs = held.enter_context(project(text, module))
        instance = held.enter_context(dg.DagsterInstance.ephemeral())
        sensor = defs.resolve_sensor_def("automation")
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING

        def merge_all(**given: Any) -> set[str]:
            """Merge what is landed; return the materialised tables and the evaluated checks."""
            done = defs.resolve_job_def("almanac_merge").execute_in_process(
                instance=instance, run_config=QUIET, **given
            )
            evaluated = done.get_asset_check_evaluations()
            checks = {f"{each.asset_key.path[-1]}.{each.check_name}" for each in evaluated}
            return checks | {
                event.asset_key.path[-1]
                for event in done.all_events
                if event.is_step_materialization and event.asset_key is not None
            }

        def pull(title: str, hour: int) -> set[str]:
            small.land("events", at=NOW + timedelta(hours=hour), body=listed(title))
            return merge_all()

        def fired() -> int:
            """Evaluate the condition as the daemon does, and run what it requests."""
            nonlocal cursor
            result = dg.evaluate_automation_conditions(
                defs, instance=instance, asset_selection=sensor.asset_selection, cursor=cursor
            )
            cursor = result.cursor
            if result.total_requested:
                job = defs.resolve_implicit_global_asset_job_def()
                done = job.execute_in_process(
                    instance=instance,
                    asset_selection=[dg.AssetKey("week_ahead")],
                    run_config=QUIET,
                )
                assert done.success
            return result.total_requested

        assert fired() == 0
        assert "events" in pull("Listing", 0)
        assert [fired(), fired()] == [1, 0]
        # A daily pull that finds nothing new evaluates the checks of tables that did not change.
        unchanged = pull("Listing", 1)
        assert {name for name in unchanged if "." not in name} == ALWAYS
        assert "events.unique_events" in unchanged
        assert fired() == 0
        prune_runs(small.home, Layout(key_prefix=("almanac",)), next_year - DAY, instance)
        assert {name for name in pull("Listing", 2) if "." not in name} == ALWAYS
        assert fired() == 0
        assert "events" in pull("Listing moved", 3)
        assert [fired(), fired()] == [1, 0]
        # Dagster fails a backfill of which a run succeeded without a materialisation.
        assert merge_all(tags={"dagster/backfill": "b"}) >= {table.name for table in PUBLISHED}


def elsewhere(root: Path, text: str) -> Home:
    """Return a home with the instance of a company, which has this `dagster.yaml`."""
    folder = root / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(text)
    home = Home(root / "home", dagster_home=folder)
    home.claim("sandbox:1")
    return home


def test_it_gets_the_records_and_no_config_of_almanac(tmp_path: Path) -> None:
    text = "telemetry: {enabled: false}\n"
    home = elsewhere(tmp_path, text)
    with open_instance(home) as instance:
        run_id = start_run(instance)
    with dg.DagsterInstance.from_config(str(home.instance_folder)) as company:
        assert company.get_run_by_id(run_id) is not None
    assert (home.instance_folder / "dagster.yaml").read_text() == text
    assert not home.dagster.exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("storage: {postgres: {postgres_db: {hostname: {env: NO_SUCH_NAME}}}}", "db_name"),
        ("storage: [", "line 1"),
        ("run_queue: {max_concurrent_runs: many}", "many"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_message_with_its_path(
    tmp_path: Path, text: str, what: str
) -> None:
    home = elsewhere(tmp_path, text)
    with pytest.raises(WarehouseError, match=what) as caught, open_instance(home):
        pass
    assert str(home.instance_folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_database_is_one_message_and_moved_away_it_is_made_again(tmp_path: Path) -> None:
    home, name = Home(tmp_path / "home"), "history/runs/index.db"
    with open_instance(home) as instance:
        start_run(instance)
    (home.dagster / name).write_bytes(b"no database" * 1000)
    with pytest.raises(WarehouseError, match=r"move this folder away"):  # noqa: SIM117
        with open_instance(home) as instance:
            instance.get_asset_keys()
    home.dagster.rename(tmp_path / "aside")
    with open_instance(home) as instance:
        assert start_run(instance)


@pytest.mark.parametrize(("syncs", "level"), [(True, 2), (False, 0)])
def test_sqlite_waits_for_the_disk_unless_it_need_not(
    tmp_path: Path, syncs: bool, level: int
) -> None:
    with (
        open_instance(Home(tmp_path / "home"), syncs=syncs),
        create_engine("sqlite://").connect() as sql,
    ):
        assert sql.exec_driver_sql("PRAGMA synchronous").scalar() == level
