"""Months of the calendar are recorded when complete; partial batches are named."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from almanac.core.progress import listening
from catalog.sandbox.sandbox import Sandbox
from pipeline.service_session import open_service
from pipeline.settings import Settings
from resources.calendar_backfill import Backfill, read_open_backfill
from resources.session import LazySession
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import (
    failure_of,
    metadata_of,
    opened_session,
    run_assets,
    settings_of,
)
from tests.pipeline.small_home import SmallHome
from tests.reading import reading
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
"""The catalog of that year is a fraction of today's."""
SPAN = (date(2018, 12, 1), date(2019, 4, 1))
MONTHS = ["2018-12-01", "2019-01-01", "2019-02-01", "2019-03-01", "2019-04-01"]


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
                config={"source": "list", **config},
                catalog_for_backfills=session,
            )
        yield Ran(result, len(service.sandbox.requests))


def test_each_month_of_a_run_is_recorded_once(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance) as ran:
        assert ran.result.success
        assert sorted(ran.recorded) == MONTHS
        found = instance.get_materialized_partitions(dg.AssetKey("landed_calendar"))
        assert found == set(MONTHS)
    events = ran.result.get_asset_materialization_events()
    assert {"batch", "observed at"} <= events[0].materialization.metadata.keys()


def test_a_used_up_quota_ends_the_run_and_records_when_it_resumes(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=())
    with run_months(settings, instance, faults="quota@0.4~events") as ran:
        assert ran.result.success
        assert sorted(ran.recorded) == MONTHS, "Dagster would count the others as failed"
        newest = ran.result.get_asset_materialization_events()[-1].materialization
        assert str(newest.metadata["outcome"].value).startswith("deferred: ")
        assert "resumes at" in newest.metadata and "rows" not in newest.metadata
    note = read_open_backfill(Home(tmp_path).state_storage, NOW)
    assert note is not None and note.resume_at is not None
    assert note.resume_at.date() == date(2019, 4, 1)
    with run_months(settings, instance, faults="quota~events") as ran:
        assert ran.result.success, "also if the quota is used up before it begins"
        assert sorted(ran.recorded) == MONTHS


def test_a_run_that_costs_more_than_the_share_of_the_day_pulls_nothing(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=(), monthly_quota=60)
    with run_months(settings, instance) as ran:
        text = "It takes about 14 requests, and the share of today in the quota allows 1. Nothing"
        assert failure_of(ran.result).startswith(text)
        assert ran.recorded == []
        assert Home(tmp_path).landing.batch_ids() == []
    with run_months(settings, instance, source="auto", max_requests=2) as ran:
        logged = "\n".join(str(entry) for entry in instance.all_logs(ran.result.run_id))
        assert "It takes about 2 requests; max_requests allows 2" in logged
        assert sorted(ran.recorded) == MONTHS


def test_months_that_the_plan_does_not_show_are_recorded_without_rows(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(tmp_path, coins=(), plan="pro")
    with run_months(settings, instance) as ran:
        outcomes = {
            event.partition: event.materialization.metadata.get("outcome")
            for event in ran.result.get_asset_materialization_events()
        }
    assert sorted(map(str, outcomes)) == MONTHS
    empty = {day for day, found in outcomes.items() if found is not None}
    assert empty == {"2018-12-01"}


def test_events_that_end_a_year_together_are_not_missing_after_a_backfill(tmp_path: Path) -> None:
    home, now = Home(tmp_path), datetime(2019, 11, 20, 9, tzinfo=UTC)
    span = (date(2019, 12, 1), date(2020, 1, 31))
    with open_service(settings_of(tmp_path, coins=(), page_size=10), now=now) as service:
        sandbox = service.sandbox
        assert sandbox is not None
        # Each page has a later time, as with a running clock.
        with listening(phase=lambda *_: sandbox.advance(timedelta(seconds=1))):
            service.puller().events(*span)
            backfill = Backfill(service, home.state_storage, *span)
            assert len([month for months in backfill.run("list") for month in months]) == 2
    merge(home)
    with reading(home) as connection:
        counted = "SELECT count(*), count(missing_since) FROM events WHERE date = $date"
        tied_at = datetime(2019, 12, 31, 23, 59, 59, tzinfo=UTC)
        ((tied, missing),) = connection.execute(counted, {"date": tied_at}).fetchall()
        ((missing_in_all,),) = connection.sql("SELECT count(missing_since) FROM events").fetchall()
    assert tied > 20, "more than two pages of them"
    assert (missing, missing_in_all) == (0, 0)


CUT = "truncate=0.6~/v2/events/export"
MONTH = ("--from", "2026-01-01", "--to", "2026-01-31")


@pytest.fixture
def sandbox(almanac_sandbox: Sandbox) -> Iterator[Sandbox]:
    yield almanac_sandbox
    almanac_sandbox.faults.clear()


@pytest.fixture
def given(tmp_path: Path, sandbox: Sandbox) -> dict[str, str]:
    return {
        "base_url": sandbox.base_url,
        "api_key": sandbox.new_key("enterprise"),
        "plan": "elite",
        "home": str(tmp_path / "home"),
        "coins": "bitcoin,ethereum",
    }


def test_a_backfill_reports_a_partial_export_with_the_reason(
    almanac: Almanac, given: dict[str, str], sandbox: Sandbox
) -> None:
    sandbox.faults.set(CUT)
    output = almanac("backfill", *MONTH, "--source", "export", "--yes", **given).output
    (line,) = [line for line in output.splitlines() if line.startswith("Partial: ")]
    assert re.search(r"\d{8}T\d{6}Z-export-[0-9a-f]+: .*the CSV ends inside a record", line)
    merged = json.loads(almanac("merge", "--json", **given).stdout)
    assert merged["problems"] == []


def test_programs_get_each_problem_as_an_object(almanac: Almanac, tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "data")
    small.land("coins", why_incomplete="page 2 broke")
    merged = json.loads(almanac("merge", "--json").stdout)
    (problem,) = merged["problems"]
    assert (problem["kind"], problem["feed"]) == ("partial", "coins")
    assert problem["why"]


def test_an_export_of_today_is_not_downloaded_again_while_it_is_the_same(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, day = settings_of(tmp_path / "home"), NOW.date()
    with opened_session(settings, now=NOW) as (session, service):
        materialise = partial(
            run_assets,
            settings,
            instance,
            *("landed_export", "event_changes"),
            partition=day,
            catalog=session,
            clock=service.clock,
        )
        first, sent = materialise(), service.log.count
        again = materialise()
        assert service.log.count == sent + 1
        before, after = (metadata_of(run, "landed_export", day) for run in (first, again))
        assert (before["outcome"], after["outcome"]) == ("pulled", "same snapshot")
        assert after["rows"] == before["rows"] > 100
        assert (after["requests"], after["bytes"]) == (1, 0)
        rows = [metadata_of(run, "event_changes", day)["rows"] for run in (first, again)]
        assert rows[0] == rows[1] == before["rows"]
        assert len(service.landing.batch_ids()) == 1
        service.sandbox.set_clock(NOW + timedelta(days=1))
        assert service.puller().export(None, None)[0].is_same is False


def test_a_materialisation_shows_a_partial_batch_in_its_log_and_metadata(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    with (
        dg.DagsterInstance.ephemeral() as instance,
        opened_session(settings, now=NOW) as (session, service),
    ):
        service.sandbox.faults.set(CUT)
        result = run_assets(
            settings,
            instance,
            "landed_export",
            partition=NOW.date(),
            catalog=session,
            clock=service.clock,
        )
        metadata = metadata_of(result, "landed_export", NOW.date())
        entries = [str(entry) for entry in instance.all_logs(result.run_id)]
    assert "partial" in str(metadata["problems"])
    assert any("Partial: " in entry and "-export-" in entry for entry in entries)
