"""The service's day where it differs from the machine's: what runs, is refused and is shown."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets.feed_day import DayNotLanded, pull_or_reuse
from assets.landed_calendar import EVENT_MONTHS
from assets.layout import Layout
from catalog.sandbox.sandbox import Sandbox
from pipeline import build
from pipeline.automation.jobs import daily_schedule
from pipeline.build import layout_of
from pipeline.health.warnings import read_health
from pipeline.instance import instance_of
from resources.scopes import month_key
from resources.session import LazySession
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import failure_of, land_empty_list, run_assets, settings_of
from warehouse.home import Home

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
APART = (-47, 47)
"""Hours by which the service is ahead of the machine."""


@pytest.fixture(params=APART)
def shifted(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A service whose clock differs from the machine's by hours."""
    now = datetime.now(UTC).replace(microsecond=0) + request.param * HOUR
    with Sandbox(now=now, export_interval_s=0) as sandbox:
        yield sandbox


def test_a_run_is_of_the_services_day_and_the_offset_is_shown(
    almanac: Almanac, shifted: Sandbox, tmp_path: Path
) -> None:
    given = {
        **{"base_url": shifted.base_url, "api_key": shifted.new_key("enterprise")},
        **{"home": str(tmp_path / "home"), "coins": "bitcoin", "plan": "elite"},
        "max_clock_skew_days": "3",
    }
    today = shifted.clock.now().date()
    summary = json.loads(almanac("run", "--json", **given).stdout)
    assert summary["days"] == [today.isoformat()]
    assert summary["problems"] == []
    home = Home(tmp_path / "home")
    assert home.landing.days() == [today]
    health = read_health(settings_of(home.root), home, datetime.now(UTC))
    assert {warning.kind for warning in health.warnings} <= {"disk", "secrets", "stale"}
    assert [feed.age_s < 600 for feed in health.feeds if feed.age_s is not None] == [True] * 5
    way = "ahead of" if shifted.clock.now() > datetime.now(UTC) else "behind"
    assert f"{way} this machine's" in almanac("status", **given).output
    # Its table would break the text.
    assert f"{way} this machine's" in almanac("doctor", "--json", code=1, **given).stdout
    found = json.loads(almanac("status", "--json", **given).stdout)
    offset = shifted.clock.now() - datetime.now(UTC)
    assert found["ahead_s"] == pytest.approx(offset.total_seconds(), abs=300)
    second = json.loads(almanac("run", "--json", **given).stdout)
    assert second["days"] == [today.isoformat()]


@pytest.mark.parametrize("ahead_h", (*APART, 0))
def test_the_calendar_has_months_up_to_two_years_after_the_service_day(ahead_h: int) -> None:
    for month, day in ((3, 30), (4, 1), (12, 31)):
        machine = datetime(2026, month, day, 12, tzinfo=UTC)
        today = machine + ahead_h * HOUR
        months = EVENT_MONTHS.get_partition_keys(current_time=machine)
        assert month_key(today.replace(year=today.year + 2)) in months


def test_a_service_with_an_implausible_date_is_pulled_and_reported(
    almanac: Almanac, almanac_sandbox: Sandbox, tmp_path: Path
) -> None:
    """The clock of the tests' sandbox is months from the machine's."""
    given = {
        **{"base_url": almanac_sandbox.base_url, "home": str(tmp_path / "home")},
        **{"api_key": almanac_sandbox.new_key("enterprise"), "coins": "bitcoin"},
        **{"plan": "elite", "max_clock_skew_days": "3"},
    }
    today = datetime.now(UTC).date()
    summary = json.loads(almanac("run", "--json", **given).stdout)
    assert summary["days"] == [today.isoformat()]
    assert {problem["kind"] for problem in summary["problems"]} >= {"undated"}
    found = json.loads(almanac("status", "--json", **given).stdout)
    assert "batches" in {warning["kind"] for warning in found["warnings"]}
    batch_id = Home(tmp_path / "home").landing.batch_ids()[0]
    assert "is ignored" in almanac("batches", "list", batch_id, **given).output
    assert "sent no plausible Date" in almanac("doctor", code=1, **given).output


def test_a_home_without_a_date_of_its_service_has_the_days_of_the_accepted_skew(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path, base_url="http://127.0.0.1:9", api_key="unused")
    layout = layout_of(settings, Home(tmp_path), datetime.now(UTC))
    today = datetime.now(UTC).date()
    assert layout.observed_days.get_partition_keys() == [
        (today + ahead * DAY).isoformat() for ahead in range(-3, 4)
    ]


def test_partitions_begin_at_the_first_landed_day_and_end_at_the_services_today(
    tmp_path: Path,
) -> None:
    home, now = Home(tmp_path), datetime.now(UTC)
    land_empty_list(home, now - 2 * DAY)
    for ahead in (-1, 0, 1):
        layout = layout_of(settings_of(tmp_path), home, now + ahead * DAY)
        days = [date.fromisoformat(key) for key in layout.observed_days.get_partition_keys()]
        assert days[0] == (now - 2 * DAY).date()
        # The machine's day is always one, since Dagster counts by it.
        assert days[-1] == (now + max(ahead, 0) * DAY).date()


@pytest.mark.parametrize("hours", [-47, -3.5, 0, 3.5, 47])
def test_the_services_today_stays_a_partition_while_definitions_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    loaded_at = datetime(2026, 3, 2, 6, tzinfo=UTC)
    monkeypatch.setattr(build, "utc_now", lambda: loaded_at)
    layout = layout_of(settings_of(tmp_path), Home(tmp_path), loaded_at + hours * HOUR)
    for later in range(60):
        at = loaded_at + later * HOUR
        days = layout.observed_days.get_partition_keys(current_time=at)
        assert (at + hours * HOUR).date().isoformat() in days


def test_a_day_that_has_not_begun_for_the_service_is_refused(tmp_path: Path) -> None:
    def never() -> None:
        raise AssertionError("a session was opened")

    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    session = LazySession(never, clock=lambda: now)  # type: ignore[arg-type]
    with pytest.raises(DayNotLanded, match="2026-03-05 has not begun for the service"):
        pull_or_reuse("export", (now + 3 * DAY).date(), session, Home(tmp_path).landing)


@pytest.mark.parametrize("hours", [-47, -3.5, 0, 3.5, 47])
def test_the_schedule_requests_the_service_day(hours: float) -> None:
    now = datetime.now(UTC).replace(hour=0, minute=20, second=0, microsecond=0)
    service_now = now + hours * HOUR
    schedule = daily_schedule(Layout(), lambda: now, lambda: service_now, lambda day: False)
    request = schedule(dg.build_schedule_context(scheduled_execution_time=now))
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == service_now.date().isoformat()


def test_a_day_that_was_not_landed_is_a_missing_partition(tmp_path: Path) -> None:
    home, now = Home(tmp_path), datetime.now(UTC)
    landed = [(now - ago * DAY).date() for ago in (5, 4, 2)]
    for ago in (5, 4, 2):
        land_empty_list(home, now - ago * DAY)
    settings = settings_of(tmp_path)
    layout = layout_of(settings, home, now)
    assert layout.observed_days.get_partition_keys() == [
        (now - ago * DAY).date().isoformat() for ago in range(5, -1, -1)
    ]
    with instance_of(home) as instance:
        span = (landed[0], landed[-1])
        result = run_assets(settings, instance, "landed_events", span=span, layout=layout)
        recorded = instance.get_materialized_partitions(dg.AssetKey("landed_events"))
    assert recorded == {day.isoformat() for day in landed}
    assert f"No events batch was landed on {(now - 3 * DAY).date()}" in failure_of(result)
