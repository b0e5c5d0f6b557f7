"""The definitions beside those of a company: merged, prefixed, switched, with its executor."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from application.daily_run import phase_of
from assets.layout import Layout
from assets.published_tables import PUBLISHED, published_tables
from pipeline.automation.dead_runs import PROCESS_TAG
from pipeline.build import build_definitions, build_resources
from pipeline.instance import instance_of
from pipeline.settings import SettingsError
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import SmallHome
from warehouse.clock import utc_now
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


def test_the_phases_of_a_run_are_those_of_its_steps_with_any_prefix(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path, **APART))
    steps = definitions.resolve_job_def("almanac_daily").graph.node_names()
    phases = {step: phase_of(step) for step in steps}
    assert phases["almanac__event_changes"] == "merge"
    assert phases["almanac_published_tables"] == "tables"
    assert phases["almanac__landed_events"] == "land"


def test_with_prefixes_they_merge_and_both_have_their_own(tmp_path: Path) -> None:
    merged = dg.Definitions.merge(build_definitions(settings_of(tmp_path, **MERGED)), company())
    repository = merged.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"events", "signals", "almanac/events"} <= keys
    assert {"daily", "almanac_daily"} <= set(repository.job_names)
    resources = repository.get_top_level_resources()
    assert {"home", "almanac_home"} <= resources.keys()
    dg.Definitions.validate_loadable(merged)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "home"),
        ({"name_prefix": "almanac_"}, "executor"),
        ({"executor": "deployment", "name_prefix": "almanac_"}, "events"),
    ],
)
def test_without_what_keeps_them_apart_the_merge_fails_with_the_reason(
    tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    def merged() -> None:
        ours = build_definitions(settings_of(tmp_path, **given))
        dg.Definitions.validate_loadable(dg.Definitions.merge(ours, company()))

    with pytest.raises(dg.DagsterError, match=reason):
        merged()


def test_a_merged_run_publishes_and_stores_nothing_with_the_company(merged_home: Path) -> None:
    settings = settings_of(merged_home, **MERGED)
    merged = dg.Definitions.merge(build_definitions(settings), company())
    with instance_of(Home(merged_home)) as instance:
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
    with instance_of(Home(merged_home)) as instance:
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


def test_an_unknown_schedule_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no schedule or sensor 'pols'.*daily_schedule.*polls"):
        build_definitions(settings_of(tmp_path, automation=("pols",)))
