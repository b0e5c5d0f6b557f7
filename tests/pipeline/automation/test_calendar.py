"""The calendar in Dagster: the months of one run are one backfill, each recorded when complete."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.instance import instance_of
from pipeline.service_session import open_service
from pipeline.settings import Settings
from resources.calendar_backfill import read_open_backfill
from resources.session import LazySession
from tests.pipeline.homes_in_days import NOW, failure_of, run_assets, settings_of
from warehouse.home import Home
from warehouse.queries import connected

SPAN = (date(2025, 11, 1), date(2026, 4, 1))
MONTHS = ["2025-11-01", "2025-12-01", "2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with instance_of(Home(tmp_path)) as instance:
        yield instance


@dataclass(frozen=True)
class Ran:
    """A run of the calendar, and how many requests the server saw of it."""

    result: dg.ExecuteInProcessResult
    requests: int

    @property
    def recorded(self) -> list[str]:
        return [
            str(event.partition)
            for event in self.result.get_asset_materialization_events()
            if event.asset_key == dg.AssetKey("landed_calendar")
        ]


@contextmanager
def run_months(
    settings: Settings,
    instance: dg.DagsterInstance,
    span: tuple[date, date] = SPAN,
    *,
    faults: str = "",
    **config: Any,
) -> Iterator[Ran]:
    with open_service(settings, now=NOW, work="backfill") as service:
        assert service.sandbox is not None
        service.sandbox.forget_requests()
        service.sandbox.faults.set(faults)
        with LazySession(lambda: nullcontext(service), clock=service.clock) as session:
            result = run_assets(
                settings,
                instance,
                "landed_calendar",
                span=span,
                config=config,
                catalog_for_backfills=session,
            )
        yield Ran(result, len(service.sandbox.requests))


def test_each_month_of_a_run_is_recorded_once_and_merged(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance) as ran:
        assert ran.result.success
        assert sorted(ran.recorded) == MONTHS
        found = instance.get_materialized_partitions(dg.AssetKey("landed_calendar"))
        assert found == set(MONTHS)
    events = ran.result.get_asset_materialization_events()
    assert {"batch", "observed at"} <= events[0].materialization.metadata.keys()
    counted = [run_assets(settings, instance, "events") for _ in range(2)]
    months = [
        {
            str(event.partition): event.materialization.metadata["rows"].value
            for event in result.get_asset_materialization_events()
            if event.asset_key == dg.AssetKey("landed_calendar")
        }
        for result in counted
    ]
    assert sorted(months[0]) == MONTHS
    assert months[1] == {}
    with connected(Home(tmp_path).warehouse) as connection:
        # A list also has events that began before its first date.
        ((count, missing),) = connection.sql(
            "SELECT count(*) FILTER (date >= '2025-11-01'), count(missing_since) FROM events"
        ).fetchall()
    assert count == sum(months[0].values()) > 2_000
    assert missing == 0


def test_a_price_over_max_requests_fails_with_the_price_and_lands_nothing(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance, max_requests=5) as ran:
        assert not ran.result.success
        message = failure_of(ran.result)
        assert re.search(r"takes \d+ requests by the list, and max_requests allows 5", message)
        assert ran.requests == 1
    assert Home(tmp_path).landing.batch_ids() == []


def test_a_backfill_by_the_export_takes_at_most_four_requests(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance, source="auto") as ran:
        assert sorted(ran.recorded) == MONTHS
        assert ran.requests <= 4


def test_months_recorded_before_a_failure_stay_and_the_next_run_requests_the_rest(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance, faults="repeat_cursor@0.2~events") as ran:
        assert not ran.result.success
        assert "cursor" in failure_of(ran.result)
        first, requests = ran.recorded, ran.requests
    with run_months(settings, instance) as second:
        assert second.result.success
        assert sorted(second.recorded) == MONTHS
    with run_months(settings, instance) as whole:
        assert requests + second.requests <= whole.requests + 2 + 4
    assert set(first) < set(MONTHS)


def test_months_outside_the_window_of_the_plan_fail_with_the_reason(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=(), plan="standard")
    past = (date(2025, 1, 1), date(2025, 2, 1))
    with run_months(settings, instance, past) as ran:
        assert "shows events from 2026-03-02 to 2026-05-31" in failure_of(ran.result)
        assert ran.requests == 0


def test_a_used_up_quota_ends_the_run_and_records_when_it_resumes(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance, faults="quota@0.1~events") as ran:
        assert ran.result.success
        assert set(ran.recorded) < set(MONTHS)
    note = read_open_backfill(Home(tmp_path).state_storage, NOW)
    assert note is not None and note.resume_at is not None
    assert note.resume_at.date() == date(2026, 4, 1)
    with run_months(settings, instance, faults="quota~events") as ran:
        assert ran.result.success, "also if the quota is used up before it begins"
        assert set(ran.recorded) < set(MONTHS)
