"""Checks of observed days and of the health, as Dagster shows them after runs and ticks."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.event_changes import CHANGES, FEW_REJECTS, ONE_ROW_PER_VERSION
from assets.landed import COMPLETE_DAY, name_asset
from pipeline.automation.health import HEALTH
from pipeline.build import build_definitions
from pipeline.health.warnings import WARNINGS
from resources.feed_day import find_shortfall
from resources.session import FeedDay
from tests.pipeline.homes_in_days import QUIET, run_assets
from tests.pipeline.small_home import DAY, PULLED, SmallHome
from warehouse.history.merge import merge
from warehouse.landing.batches import Feed

NOON = datetime.now(UTC).replace(hour=12, minute=30, second=0, microsecond=0)
UNREADABLE = b'{"data": [{"id": 7}, {"id": "a", "title": "A", "date": "2026-04-01T00:00:00Z"}]}'


def ago(days: int) -> date:
    return (NOON - days * DAY).date()


def find_failed(instance: dg.DagsterInstance, asset: str, check: str) -> dict[date, str]:
    """Return what the newest result of a check says about each day on which it failed."""
    found = {}
    query = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    for record in instance.get_event_records(query, ascending=True):
        event = record.event_log_entry.dagster_event
        assert event is not None
        result = event.asset_check_evaluation_data
        key = dg.AssetCheckKey(dg.AssetKey(asset), check)
        if result.partition is not None and result.asset_check_key == key:
            found[date.fromisoformat(result.partition)] = result
    return {
        day: str(result.description).removeprefix(f"{day}: ")
        for day, result in found.items()
        if not result.passed
    }


def tick(small: SmallHome, instance: dg.DagsterInstance) -> None:
    """Evaluate the sensor `health` of the real definitions, and store what it reports."""
    definitions = build_definitions(small.settings, clock=lambda: NOON)
    sensor = definitions.resolve_sensor_def(HEALTH)
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    """A home with three days up to the day before yesterday: fewer rows on the second, no coins on
    the third."""
    small = SmallHome(tmp_path / "home")
    lacking: tuple[Feed, ...] = tuple(feed for feed in PULLED if feed != "coins")
    for days, feeds, rows in ((4, PULLED, 100), (3, PULLED, 49), (2, lacking, 49)):
        small.land(*feeds, at=NOON - days * DAY, rows_claimed=rows)
    merge(small.home)
    return small


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(small: SmallHome, instance: dg.DagsterInstance, *names: str, **given: Any) -> None:
    result = run_assets(small.settings, instance, *names, clock=lambda: NOON, **given)
    assert result.success


def test_a_result_is_of_its_day_and_stays_when_another_day_passes(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    names = [name_asset("export"), name_asset("coins"), CHANGES]
    run(small, instance, *names, span=(ago(4), ago(2)))
    fewer = {ago(3): "49 rows, 100 the day before"}
    no_coins = "No complete pull: not received on that day; the other feeds were"
    assert find_failed(instance, "landed_export", COMPLETE_DAY) == fewer
    assert find_failed(instance, "landed_coins", COMPLETE_DAY) == {**fewer, ago(2): no_coins}
    assert not find_failed(instance, CHANGES, ONE_ROW_PER_VERSION)
    assert not find_failed(instance, CHANGES, FEW_REJECTS)
    run(small, instance, *names[:1], partition=ago(2))
    assert find_failed(instance, "landed_export", COMPLETE_DAY) == fewer
    # A merge outside the day records it again, with its checks.
    small.land("events", at=NOON - 3 * DAY + timedelta(hours=1), body=UNREADABLE)
    run(small, instance, "batches")
    assert find_failed(instance, CHANGES, FEW_REJECTS) == {ago(3): "1 of 2 rows were rejected"}
    assert not find_failed(instance, CHANGES, ONE_ROW_PER_VERSION)


def test_no_check_of_the_health_or_of_a_table_is_hidden_by_a_publication(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    definitions = build_definitions(small.settings, clock=lambda: NOON)
    tick(small, instance)
    small.land("events", at=NOON - timedelta(hours=1), body=UNREADABLE)
    merging = definitions.resolve_job_def("merge")
    done = merging.execute_in_process(instance=instance, run_config=QUIET)
    assert done.success
    graph = definitions.resolve_asset_graph()
    checks = {key for key in graph.asset_check_keys if key.name != COMPLETE_DAY}
    assert {key.name for key in checks} > WARNINGS.keys()
    for key in checks:
        record = instance.get_latest_asset_check_evaluation_record(key)
        assert record is not None and record.evaluation is not None, key
        # Dagster shows a result of the run of the newest materialisation, or of a later time.
        newest = instance.get_latest_materialization_event(key.asset_key)
        assert newest is None or record.run_id == done.run_id, key


@pytest.mark.parametrize(
    ("rows", "before", "why"),
    [
        (0, 100, "0 rows, 100 the day before"),
        (49, 100, "49 rows, 100 the day before"),
        (50, 100, None),
        (1, 11, None),
        (None, 100, None),
        (0, None, None),
    ],
)
def test_less_than_half_the_rows_of_the_day_before_fail_a_day(
    tmp_path: Path, rows: int | None, before: int | None, why: str | None
) -> None:
    small = SmallHome(tmp_path / "home")
    small.land("coins", at=NOON - DAY, rows_claimed=before)
    small.land("coins", at=NOON, rows_claimed=rows)
    assert find_shortfall(FeedDay("coins", ago(0), "pulled"), small.home) == why


def test_a_day_without_a_complete_pull_fails_unless_the_plan_lacks_the_feed(
    tmp_path: Path,
) -> None:
    small = SmallHome(tmp_path / "home")
    small.land("export", at=NOON, why_incomplete="page 2 broke")
    deferred = FeedDay("export", ago(0), "deferred: the quota")
    assert find_shortfall(deferred, small.home) == "No complete pull: deferred: the quota"
    lacking = FeedDay("export", ago(0), "not in the plan free")
    assert find_shortfall(lacking, small.home) is None
