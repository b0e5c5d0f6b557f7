"""An eager asset of someone else runs once for each change of `events`, and not otherwise."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.published_tables import PUBLISHED
from pipeline.automation.prune import prune_runs
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, NOW, SmallHome

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
    checked: set[tuple[str, str]] = field(default_factory=set, init=False)
    """The checks that the last run evaluated: table and name."""
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

    def run(self, job: str, **given: Any) -> set[str]:
        done = self.defs.resolve_job_def(job).execute_in_process(
            instance=self.instance, run_config=QUIET, **given
        )
        evaluated = done.get_asset_check_evaluations()
        self.checked = {(check.asset_key.path[-1], check.check_name) for check in evaluated}
        return {
            event.asset_key.to_user_string()
            for event in done.all_events
            if event.is_step_materialization and event.asset_key is not None
        }

    def fired(self) -> int:
        """Evaluate the condition as the daemon does, and record what it requests as done."""
        result = dg.evaluate_automation_conditions(
            self.defs,
            instance=self.instance,
            asset_selection=dg.AssetSelection.assets("report"),
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        if result.total_requested:
            self.instance.report_runless_asset_event(dg.AssetMaterialization("report"))
        return result.total_requested


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with dg.DagsterInstance.ephemeral() as instance:
        found = Followed(SmallHome(tmp_path), instance)
        assert found.fired() == 0
        yield found


def test_it_runs_once_for_each_change_of_events(followed: Followed) -> None:
    assert "events" in followed.pull("Listing", NOW)
    assert [followed.fired(), followed.fired()] == [1, 0]
    # A daily pull that finds nothing new.
    unchanged = followed.pull("Listing", NOW + HOUR)
    assert unchanged == {"event_changes", "batches", "coverage"}
    assert ("events", "unique_events") in followed.checked, "a table that did not change, too"
    assert followed.fired() == 0
    assert "events" in followed.pull("Listing moved", NOW + 2 * HOUR)
    assert [followed.fired(), followed.fired()] == [1, 0]
    assert followed.run("merge") == set()
    assert followed.fired() == 0


def test_a_backfill_materialises_tables_that_did_not_change(followed: Followed) -> None:
    """Dagster fails a backfill of which a run succeeded without a materialisation."""
    followed.pull("Listing", NOW)
    assert followed.run("merge") == set()
    tables = {table.name for table in PUBLISHED}
    assert followed.run("merge", tags={"dagster/backfill": "b"}) >= tables


def test_it_does_not_run_after_old_runs_are_deleted(tmp_path: Path) -> None:
    small, next_year = SmallHome(tmp_path), datetime.now(UTC) + 400 * DAY
    with instance_of(small.home) as instance:
        followed = Followed(small, instance)
        assert followed.fired() == 0
        followed.pull("Listing", NOW)
        assert followed.fired() == 1
        followed.pull("Listing", NOW + HOUR)
        prune_runs(small.home, small.settings, next_year - DAY, instance)
        unchanged = followed.pull("Listing", NOW + 2 * HOUR)
        assert unchanged == {"event_changes", "batches", "coverage"}
        assert followed.fired() == 0
