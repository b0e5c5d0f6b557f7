"""`almanac dagster report` records the data of a home in a new instance."""

import json
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from assets.landed import LANDED
from assets.layout import Layout
from assets.missing_records import find_missing_records
from assets.published import PUBLISHED
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

DAYS = {str(day) for day in (date(2026, 3, 1), date(2026, 3, 2))}


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    small = SmallHome(tmp_path / "home")
    small.land(at=NOW - DAY)
    small.land()
    merge(small.home)
    return small


def test_a_new_instance_gets_days_and_tables_once(
    small: SmallHome, tmp_path: Path, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "company"
    folder.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    home = {"home": str(small.home.root)}
    planned = json.loads(almanac("dagster", "report", "--dry-run", "--json", **home).output)
    recorded = json.loads(almanac("dagster", "report", "--json", **home).output)
    assert recorded == planned
    assert recorded["instance"] == str(folder)
    counts = recorded["recorded"]
    assert {name: counts[name] for name in (*LANDED, "event_changes")} == {
        name: 2 for name in (*LANDED, "event_changes")
    }
    assert all(counts[table.name] == 1 for table in PUBLISHED)
    assert "Nothing to record" in almanac("dagster", "report", **home).output
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("landed_events")) == DAYS
        assert instance.get_runs_count() == 0


def test_a_table_that_did_not_change_since_is_not_materialised_again(small: SmallHome) -> None:
    layout = Layout(key_prefix=("market",))
    definitions = build_definitions(
        settings_of(small.home.root, key_prefix=("market",)), layout=layout
    )
    with instance_of(small.home) as instance:
        for event in find_missing_records(layout, small.home, instance):
            instance.report_runless_asset_event(event)
        job = definitions.resolve_job_def("merge")
        done = job.execute_in_process(instance=instance, raise_on_error=False)
        materialised = [event for event in done.all_events if event.is_step_materialization]
    assert materialised == []


def test_a_home_without_a_publication_gets_its_landed_days(tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    small.land("events")
    with instance_of(Home(tmp_path)) as instance:
        found = list(find_missing_records(Layout(), small.home, instance))
    assert {event.partition for event in found} == {"2026-03-02"}
    assert {event.asset_key.to_user_string() for event in found} <= set(LANDED)
