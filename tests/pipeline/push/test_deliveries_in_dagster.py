"""Deliveries in Dagster: the sensor requests a run, which lands, merges, publishes and checks."""

from collections.abc import Callable, Iterator
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
from resources.inbox.deliveries import WaitingDeliveries, land_deliveries, waiting_deliveries
from resources.inbox.inbox_file import Arrival, InboxReader, InboxWriter
from resources.inbox.progress import LandingProgress, ProgressFile, connected
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
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.normalise.json_feeds import DeliveryHead, delivery_head
from warehouse.queries import connected as connected_to

PREFIXES: dict[str, Any] = {
    "key_prefix": ("market", "events"),
    "group_prefix": "cal_",
    "name_prefix": "cal_",
}
PREFIX = dg.AssetKey(["market", "events"]).path
MINUTE = timedelta(minutes=1)
WARN = dg.AssetCheckSeverity.WARN


def store(home: Home, at: datetime, *bodies: bytes) -> None:
    with InboxWriter.open(home, lambda: at) as writer:
        writer.store([Arrival(body) for body in bodies])


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
        assert waiting_deliveries(home).count == 0
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
    land_deliveries(home, lambda: NOW)
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
        assert waiting_deliveries(home).count == 1
        result = run_assets(
            settings, instance, "landed_deliveries", span=(YESTERDAY, TODAY), clock=lambda: NOW
        )
        landed = recorded(result, "landed_deliveries", [])
        assert landed[TODAY.isoformat()]["deliveries landed"] == 1
        assert "deliveries landed" not in landed[YESTERDAY.isoformat()]
    assert waiting_deliveries(home).count == 0


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
        assert waiting_deliveries(home).progress.failures == 1
        assert waiting_deliveries(home).count == 1
        done = run_assets(
            settings, instance, "landed_deliveries", partition=TODAY, clock=lambda: NOW
        )
        assert done.success
    assert waiting_deliveries(home).count == 0


def test_the_daily_pull_lands_what_waits_and_folds_it_among_the_pulls(tmp_path: Path) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1, title="Pushed before the first pull"))
    with instance_of(home) as instance:
        run_sandbox_days(settings, instance, days=1)
    assert "Pushed before the first pull" in titles(home)
    assert len(titles(home)) > 100
    assert waiting_deliveries(home).count == 0


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
    assert requests(first) == [("0-2-1", TODAY.isoformat())]
    second = tick(settings, instance, first.cursor, NOW + timedelta(seconds=15))
    assert "2 deliveries wait" in str(second.skip_reason)
    land_deliveries(home, lambda: NOW)
    store(home, NOW, delivery(3))
    soon = tick(settings, instance, second.cursor, NOW + timedelta(seconds=59))
    assert "1 delivery waits; the next run starts at 09:01:00 UTC" in str(soon.skip_reason)
    later = tick(settings, instance, soon.cursor, NOW + MINUTE)
    assert requests(later) == [("2-3-2", TODAY.isoformat())]


def test_the_shortest_time_between_two_runs_is_a_setting(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path, push_merge_interval_s=600)
    store(home, NOW, delivery(1))
    first = tick(settings, instance)
    land_deliveries(home, lambda: NOW)
    store(home, NOW, delivery(2))
    assert requests(tick(settings, instance, first.cursor, NOW + 9 * MINUTE)) == []
    assert len(requests(tick(settings, instance, first.cursor, NOW + 10 * MINUTE))) == 1


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


def test_a_dead_letter_that_a_person_replays_is_a_reason_for_a_run_each_time(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1), *(delivery(1, title=f"Other {n}") for n in range(2)))
    land_deliveries(home, lambda: NOW)
    cursor, keys, now = None, [], NOW
    for letter in (2, 3):
        with ProgressFile.open(home) as file:
            file.settle([letter], "replayed")
        requested = tick(settings, instance, cursor, now)
        keys += requests(requested)
        land_deliveries(home, lambda: NOW)
        cursor = tick(settings, instance, requested.cursor, now).cursor
        now += MINUTE
    assert len(set(keys)) == 2


def test_an_inbox_that_cannot_be_read_is_the_reason_of_the_tick(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1))
    (home.state / "inbox" / "deliveries.sqlite").write_bytes(b"damaged" * 1_000)
    assert "can't be used" in str(tick(settings, instance).skip_reason)


def waiting(count: int, landed_to: int = 0) -> WaitingDeliveries:
    return WaitingDeliveries(landed_to + count, NOW, LandingProgress(landed_to))


def decided(found: WaitingDeliveries, state: DeliveryState, now: datetime) -> Decision:
    return decide_deliveries(
        found, state, now=now, running=None, least_interval=MINUTE, service_now=now
    )


def test_runs_that_land_nothing_are_requested_again_after_waits_that_double() -> None:
    keys, state, now = [], DeliveryState(), NOW
    for minute in range(6 * 60):
        decision = decided(waiting(2 + minute), state, now)
        if decision.request is not None:
            keys.append((decision.request.run_key, minute))
        elif minute > 1:
            assert "landed none of them" in decision.reason
        state = decision.state or state  # type: ignore[assignment]
        now += MINUTE
    assert len({key for key, _ in keys}) == len(keys)
    assert [minute for _, minute in keys[:7]] == [0, 1, 3, 7, 15, 31, 63]
    assert keys[-1][1] - keys[-2][1] == 60
    decision = decided(waiting(1, landed_to=400), state, now)
    assert decision.request is not None
    assert isinstance(decision.state, DeliveryState)
    assert decision.state.attempt == 1


def test_no_run_is_requested_just_before_midnight_that_would_land_on_the_next_day() -> None:
    before_midnight = datetime(2026, 3, 2, 23, 59, 10, tzinfo=UTC)
    decision = decided(waiting(1), DeliveryState(), before_midnight)
    assert decision.request is None
    assert "the day that begins soon" in decision.reason
    decision = decided(waiting(1), DeliveryState(), before_midnight + MINUTE)
    assert decision.request is not None
    assert decision.request.partition_key == "2026-03-03"


def steps_of(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of steps that SQLite takes for some reading of the inbox."""
    count = 0

    def counted(path: Path, **given: bool) -> Any:
        connection = connected(path, **given)

        def step() -> None:
            nonlocal count
            count += 1

        connection.set_progress_handler(step, 1)
        return connection

    with monkeypatch.context() as patched:
        for module in ("inbox_file", "progress"):
            patched.setattr(f"resources.inbox.{module}.connected", counted)
        work()
    return count


def test_a_tick_reads_one_row_however_large_the_inbox_is(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(0))
    land_deliveries(home, lambda: NOW)
    store(home, NOW, delivery(1))
    small = steps_of(lambda: tick(settings, instance), monkeypatch)
    store(home, NOW, *(delivery(number) for number in range(2, 3_000)))
    with ProgressFile.open(home) as file:
        file.settle(range(10_000, 11_000), "dismissed")
    assert steps_of(lambda: tick(settings, instance), monkeypatch) == small
    assert steps_of(lambda: InboxReader(home).newest(3_000), monkeypatch) > 10 * small


def test_batches_landed_in_any_order_and_twice_make_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters are landed in the order in which a person replays them."""
    histories = []
    for number, order in enumerate([(1, 2, 3), (3, 2, 1), (2, 3, 1, 2)]):
        _, home = begun(tmp_path / str(number))
        clock = Clock(NOW)
        with monkeypatch.context() as patched:
            patched.setattr("resources.inbox.inbox_file.delivery_head", _unreadable)
            for each in range(3):
                store(home, clock.now(), moved(each, clock.now()))
                clock.advance(hours=11)
        for seq in order:
            with ProgressFile.open(home) as file:
                file.settle([seq], "replayed")
            land_deliveries(home, clock.now)
            merge(home)
        with connected_to(home.warehouse) as connection:
            versions = "SELECT * EXCLUDE (batch_id) FROM event_versions ORDER BY version"
            histories.append(connection.sql(versions).fetchall())
    assert len(histories[0]) == 3
    assert histories[0] == histories[1] == histories[2]


def moved(number: int, at: datetime) -> bytes:
    body = delivery(number, kind="updated", at=at, title=f"Title {number}")
    return body.replace(f'"evt_{number}"'.encode(), b'"evt_1"')


def _unreadable(body: bytes) -> DeliveryHead:
    head = delivery_head(body)
    return DeliveryHead(head.delivery_id, head.kind, None, "can't be read yet")
