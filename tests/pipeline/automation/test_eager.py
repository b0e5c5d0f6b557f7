"""An eager asset of someone else runs once for each change of `events`, and not otherwise."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from assets.layout import Layout
from assets.published import PUBLISHED
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.home import Home

HOUR = timedelta(hours=1)


@dg.asset(deps=["events"], automation_condition=dg.AutomationCondition.eager())
def report() -> None:
    """An asset of a company, which follows `events`."""


def listed(title: str) -> bytes:
    event = {"id": "a", "title": title, "date": "2026-04-01T00:00:00Z"}
    return json.dumps({"data": [event]}).encode()


@dataclass
class Followed:
    """A home with an instance, and an asset that follows its events."""

    small: SmallHome
    instance: dg.DagsterInstance
    cursor: dg.AutomationConditionSensorDefinition | None = field(default=None, init=False)
    defs: dg.Definitions = field(init=False)

    def __post_init__(self) -> None:
        self.defs = dg.Definitions.merge(
            build_definitions(self.small.settings), dg.Definitions(assets=[report])
        )

    def pull(self, title: str, at: datetime) -> set[str]:
        """Land a pull and merge it; return the materialised tables."""
        self.small.land("events", at=at, body=listed(title))
        return self.run("merge")

    def run(self, job: str, **given: str) -> set[str]:
        done = self.defs.resolve_job_def(job).execute_in_process(
            instance=self.instance, run_config=QUIET, **given
        )
        return {
            event.asset_key.to_user_string()
            for event in done.all_events
            if event.is_step_materialization and event.asset_key is not None
        }

    def fired(self) -> int:
        """Evaluate the condition as the daemon does, and materialise what it requests."""
        result = dg.evaluate_automation_conditions(
            self.defs,
            instance=self.instance,
            asset_selection=dg.AssetSelection.assets("report"),
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        if result.total_requested:
            assert dg.materialize([report], instance=self.instance, run_config=QUIET).success
        return result.total_requested


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with instance_of(Home(tmp_path / "home")) as instance:
        found = Followed(SmallHome(tmp_path / "home"), instance)
        assert found.fired() == 0
        yield found


def test_it_runs_once_for_each_change_of_events(followed: Followed) -> None:
    assert "events" in followed.pull("Listing", NOW)
    assert [followed.fired(), followed.fired()] == [1, 0]
    # A daily pull that finds nothing new.
    unchanged = followed.pull("Listing", NOW + HOUR)
    assert unchanged == {"event_changes", "batches", "coverage"}
    assert followed.fired() == 0
    assert "events" in followed.pull("Listing moved", NOW + 2 * HOUR)
    assert [followed.fired(), followed.fired()] == [1, 0]
    assert followed.run("merge") == set()
    assert followed.fired() == 0


def test_checks_are_evaluated_where_their_table_did_not_change(followed: Followed) -> None:
    followed.pull("Listing", NOW)
    followed.small.land("events", at=NOW + HOUR, body=listed("Listing"))
    done = followed.defs.resolve_job_def("merge").execute_in_process(
        instance=followed.instance, run_config=QUIET
    )
    evaluated = {(result.asset_key.path[-1], result.check_name) for result in checks_of(done)}
    assert ("events", "unique_events") in evaluated
    assert ("coverage", "recently_looked") in evaluated


def checks_of(done: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    return done.get_asset_check_evaluations()


def test_a_table_that_did_not_change_is_not_shown_as_outdated(followed: Followed) -> None:
    followed.pull("Listing", NOW - DAY)
    followed.pull("Listing", NOW)
    days = [(NOW - DAY).date().isoformat(), NOW.date().isoformat()]
    for day in days:
        event = dg.AssetMaterialization(
            "event_changes", partition=day, tags={"dagster/data_version": f"{day}-2"}
        )
        followed.instance.report_runless_asset_event(event)
    graph = followed.defs.resolve_asset_graph()
    statuses = CachingStaleStatusResolver(
        followed.instance, graph, LoadingContextForTest(followed.instance)
    )
    shown = {table.name: statuses.get_status(Layout().key(table.name)) for table in PUBLISHED}
    assert set(shown.values()) == {StaleStatus.FRESH}
