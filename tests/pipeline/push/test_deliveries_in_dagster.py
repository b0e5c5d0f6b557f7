"""Deliveries in Dagster: the sensor requests a run, which lands, merges, publishes and checks."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.automation.merges import DeliveryState, decide_deliveries
from pipeline.automation.run_decisions import Decision
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from pipeline.settings import Settings
from resources.inbox import Inbox
from tests.pipeline.homes_in_days import (
    NOW,
    QUIET,
    TODAY,
    YESTERDAY,
    failure_of,
    run_assets,
    run_sandbox_days,
    settings_of,
)
from tests.resources.inbox.deliveries import delivery, store
from warehouse.home import Home
from warehouse.queries import connected as connected_to

PREFIXES: dict[str, Any] = {
    "key_prefix": ("market", "events"),
    "group_prefix": "cal_",
    "name_prefix": "cal_",
}
PREFIX = dg.AssetKey(["market", "events"]).path
MINUTE = timedelta(minutes=1)
WARN = dg.AssetCheckSeverity.WARN


def begun(path: Path, **given: Any) -> tuple[Settings, Home]:
    """Return a home that has a stamp and nothing else, as `almanac receive` leaves a new one."""
    settings = settings_of(path, **given)
    home = Home(path)
    home.claim(settings.source)
    return settings, home


def run_job(
    settings: Settings, instance: dg.DagsterInstance, day: date = TODAY
) -> dg.ExecuteInProcessResult:
    definitions = build_definitions(settings, clock=lambda: NOW)
    job = definitions.resolve_job_def(settings.name_prefix + "deliveries")
    return job.execute_in_process(
        instance=instance,
        partition_key=day.isoformat(),
        raise_on_error=False,
        run_config=QUIET,
    )


def recorded(
    result: dg.ExecuteInProcessResult, asset: str, prefix: list[str]
) -> dict[str | None, dict[str, Any]]:
    """Return the metadata of an asset by partition."""
    return {
        found.materialization.partition: {
            name: value.value for name, value in found.materialization.metadata.items()
        }
        for found in result.get_asset_materialization_events()
        if found.asset_key == dg.AssetKey([*prefix, asset])
    }


def titles(home: Home) -> set[str]:
    with connected_to(home.warehouse) as connection:
        return {title for (title,) in connection.sql("SELECT title FROM events").fetchall()}


def test_a_run_lands_merges_publishes_and_checks_before_the_first_pull_too(tmp_path: Path) -> None:
    settings, home = begun(tmp_path, **PREFIXES)
    # The layout of the run has no day before its today.
    store(home, NOW - timedelta(days=1), delivery(1), delivery(2))
    store(home, NOW, delivery(3), b"unreadable")
    with instance_of(home) as instance:
        result = run_job(settings, instance)
        assert result.success
        landed = recorded(result, "landed_deliveries", PREFIX)
        assert landed.keys() == {YESTERDAY.isoformat(), TODAY.isoformat()}
        of_yesterday, of_today = landed[YESTERDAY.isoformat()], landed[TODAY.isoformat()]
        assert (of_yesterday["deliveries landed"], of_today["deliveries landed"]) == (2, 1)
        assert (of_yesterday["rows"], of_today["rows"]) == (2, 1)
        assert {of_yesterday["outcome"], of_today["outcome"]} == {"landed from the inbox"}
        assert "Event 3" in of_today["preview"]
        assert "events.created" in of_today["preview"]
        changed = recorded(result, "event_changes", PREFIX)
        assert changed.keys() == {YESTERDAY.isoformat(), TODAY.isoformat()}
        checks = result.get_asset_check_evaluations()
        assert checks
        # Nothing was pulled yet, and the home has a dead letter.
        assert {check.severity for check in checks if not check.passed} <= {WARN}
        assert titles(home) == {"Event 1", "Event 2", "Event 3"}
        assert Inbox(home).names() == []
        assert home.landing.pending() == []
        steps = [event.step_key for event in result.all_events if event.is_step_start]
        order = ["landed_deliveries", "event_changes", "published_tables"]
        places = [next(n for n, key in enumerate(steps) if str(key).endswith(o)) for o in order]
        assert places == sorted(places)
        again = run_job(settings, instance)
        assert again.success
        metadata = recorded(again, "landed_deliveries", PREFIX)[TODAY.isoformat()]
        assert (metadata["outcome"], metadata["rows"]) == ("reused from landing", 1)
        assert "deliveries landed" not in metadata


def test_past_days_report_what_was_landed_and_land_nothing(tmp_path: Path) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW - timedelta(days=1), delivery(1))
    Inbox(home).land(lambda: NOW)
    store(home, NOW, delivery(2))
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_assets(
            settings,
            instance,
            "landed_deliveries",
            span=(YESTERDAY, YESTERDAY),
            clock=lambda: NOW,
        )
        assert result.success
        landed = recorded(result, "landed_deliveries", [])
        assert landed.keys() == {YESTERDAY.isoformat()}
        assert landed[YESTERDAY.isoformat()]["outcome"] == "reused from landing"
        assert len(Inbox(home).names()) == 1
        result = run_assets(
            settings, instance, "landed_deliveries", span=(YESTERDAY, TODAY), clock=lambda: NOW
        )
        landed = recorded(result, "landed_deliveries", [])
        assert landed[TODAY.isoformat()]["deliveries landed"] == 1
        assert "deliveries landed" not in landed[YESTERDAY.isoformat()]
    assert Inbox(home).names() == []


def test_a_landing_that_fails_is_a_plain_failure_and_the_next_run_lands_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1))

    def full(*args: Any, **given: Any) -> None:
        raise OSError(28, "No space left on device")

    with dg.DagsterInstance.ephemeral() as instance:
        with monkeypatch.context() as patched:
            patched.setattr("warehouse.landing.landing.Landing.land", full)
            failed = run_assets(
                settings, instance, "landed_deliveries", partition=TODAY, clock=lambda: NOW
            )
        assert "No space left on device" in failure_of(failed)
        assert len(Inbox(home).names()) == 1
        done = run_assets(
            settings, instance, "landed_deliveries", partition=TODAY, clock=lambda: NOW
        )
        assert done.success
    assert Inbox(home).names() == []


def test_the_daily_pull_lands_what_waits_and_folds_it_among_the_pulls(tmp_path: Path) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1, title="Pushed before the first pull"))
    with instance_of(home) as instance:
        run_sandbox_days(settings, instance, days=1)
    assert "Pushed before the first pull" in titles(home)
    assert len(titles(home)) > 100
    assert Inbox(home).names() == []


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def tick(
    settings: Settings,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
    now: datetime = NOW,
) -> dg.SensorResult:
    """Evaluate the sensor of a fresh daemon, which has only the cursor."""
    definitions = build_definitions(settings, clock=lambda: now)
    sensor = definitions.resolve_sensor_def(settings.name_prefix + "deliveries")
    context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def requests(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(found.run_key, found.partition_key) for found in result.run_requests or ()]


def test_the_sensor_requests_one_run_of_today_while_deliveries_wait(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path, **PREFIXES)
    assert "No delivery waits" in str(tick(settings, instance).skip_reason)
    store(home, NOW, delivery(1), delivery(2))
    first = tick(settings, instance)
    ((first_key, day),) = requests(first)
    assert day == TODAY.isoformat()
    second = tick(settings, instance, first.cursor, NOW + timedelta(seconds=15))
    assert "2 deliveries wait" in str(second.skip_reason)
    Inbox(home).land(lambda: NOW)
    store(home, NOW, delivery(3))
    soon = tick(settings, instance, second.cursor, NOW + timedelta(seconds=59))
    assert "1 delivery waits; the next run starts at 09:01:00 UTC" in str(soon.skip_reason)
    later = tick(settings, instance, soon.cursor, NOW + MINUTE)
    ((later_key, day),) = requests(later)
    assert day == TODAY.isoformat() and later_key != first_key


@pytest.mark.parametrize("job", ["deliveries", "merge", "daily"])
def test_no_run_is_requested_while_one_lands_or_merges(
    tmp_path: Path, instance: dg.DagsterInstance, job: str
) -> None:
    settings, home = begun(tmp_path, **PREFIXES)
    store(home, NOW, delivery(1))
    definition = build_definitions(settings, clock=lambda: NOW).resolve_job_def(f"cal_{job}")
    run = instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED)
    result = tick(settings, instance)
    assert requests(result) == []
    assert f"run {run.run_id[:8]} is in progress" in str(result.skip_reason)
    instance.report_run_canceled(run)
    assert len(requests(tick(settings, instance, result.cursor))) == 1


def decided(waiting: list[str], state: DeliveryState, now: datetime) -> Decision:
    return decide_deliveries(waiting, state, now=now, running=None, service_now=now)


def test_runs_that_land_nothing_are_requested_again_after_waits_that_double() -> None:
    keys, state, now = [], DeliveryState(), NOW
    for minute in range(6 * 60):
        decision = decided([f"{number:03}" for number in range(2 + minute)], state, now)
        if decision.request is not None:
            keys.append((decision.request.run_key, minute))
        elif minute > 1:
            assert "landed none of them" in decision.reason
        state = decision.state or state  # type: ignore[assignment]
        now += MINUTE
    assert len({key for key, _ in keys}) == len(keys)
    assert [minute for _, minute in keys[:7]] == [0, 1, 3, 7, 15, 31, 63]
    assert keys[-1][1] - keys[-2][1] == 60
    decision = decided(["400"], state, now)
    assert decision.request is not None
    assert isinstance(decision.state, DeliveryState)
    assert decision.state.attempt == 1


def test_no_run_is_requested_just_before_midnight_that_would_land_on_the_next_day() -> None:
    before_midnight = datetime(2026, 3, 2, 23, 59, 10, tzinfo=UTC)
    decision = decided(["1"], DeliveryState(), before_midnight)
    assert decision.request is None
    assert "the day that begins soon" in decision.reason
    decision = decided(["1"], DeliveryState(), before_midnight + MINUTE)
    assert decision.request is not None
    assert decision.request.partition_key == "2026-03-03"
