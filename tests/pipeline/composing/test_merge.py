"""The definitions beside those of a company: merged, prefixed, switched, with its executor."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.layout import Layout
from assets.published_tables import PUBLISHED, published_tables
from pipeline.automation.dead_runs import PROCESS_TAG
from pipeline.build import build_definitions, build_resources
from pipeline.instance import open_instance
from pipeline.settings import SettingsError
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.run_records import start_run
from tests.pipeline.small_home import SmallHome
from warehouse.clock import utc_now
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge
from warehouse.home import Home

APART = {"key_prefix": ("almanac",), "group_prefix": "almanac_", "name_prefix": "almanac_"}
MERGED = {**APART, "executor": "deployment"}


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
    merged = dg.Definitions.merge(build_definitions(settings_of(tmp_path, **MERGED)), company())
    repository = merged.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"events", "signals", "almanac/events"} <= keys
    assert {"daily", "almanac_daily"} <= set(repository.job_names)
    resources = repository.get_top_level_resources()
    assert {"home", "almanac_home"} <= resources.keys()
    dg.Definitions.validate_loadable(merged)


def test_without_what_keeps_them_apart_the_merge_fails_with_the_reason(tmp_path: Path) -> None:
    named = {"name_prefix": "almanac_"}
    for given, reason in (({}, "home"), (named, "executor")):
        with pytest.raises(dg.DagsterError, match=reason):
            dg.Definitions.merge(build_definitions(settings_of(tmp_path, **given)), company())


def test_a_merged_run_publishes_and_stores_nothing_with_the_company(merged_home: Path) -> None:
    settings = settings_of(merged_home, **MERGED)
    merged = dg.Definitions.merge(build_definitions(settings), company())
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
    assert "ALMANAC_KEY_PREFIX" in error.cause.message


@pytest.mark.parametrize(
    ("automation", "on"),
    [(("none",), set()), (("polls", "daily_schedule"), {"polls", "daily_schedule"})],
)
def test_only_the_named_schedules_and_sensors_are_on(
    tmp_path: Path, automation: tuple[str, ...], on: set[str]
) -> None:
    settings = settings_of(tmp_path, automation=automation, name_prefix="cal_")
    repository = build_definitions(settings).get_repository_def()
    running = {
        definition.name.removeprefix("cal_")
        for definition in (*repository.schedule_defs, *repository.sensor_defs)
        if definition.default_status.value == "RUNNING"
    }
    assert running == on
    with pytest.raises(SettingsError, match=r"no schedule or sensor 'pols'.*daily_schedule.*polls"):
        build_definitions(settings_of(tmp_path, automation=("pols",)))


def elsewhere(root: Path, text: str = "telemetry: {enabled: false}\n") -> Home:
    """Return a home with the instance of a company, which has this `dagster.yaml`."""
    folder = root / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(text)
    home = Home(root / "home", dagster_home=folder)
    home.claim("sandbox:1")
    return home


def test_it_gets_the_records_and_no_config_of_almanac(tmp_path: Path) -> None:
    home = elsewhere(tmp_path)
    with open_instance(home) as instance:
        run_id = start_run(instance)
    with dg.DagsterInstance.from_config(str(home.instance_folder)) as company:
        assert company.get_run_by_id(run_id) is not None
    text = (home.instance_folder / "dagster.yaml").read_text()
    assert text == "telemetry: {enabled: false}\n"
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
