"""Deliveries in the inbox: settled by commands, merged by the receiver, landed by Dagster."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from application import receiver
from application.receiver import MergeThread
from assets.layout import Layout
from pipeline.automation.sensors import Decision, JobHistory, decide_merge
from pipeline.build import build_definitions, make_layout
from pipeline.home_location import locate_home
from pipeline.settings import Settings
from tests.hangs import wait_for
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import NOW, QUIET, TODAY, YESTERDAY, settings_of
from tests.reading import reading
from tests.warehouse.inbox.deliveries import START, Clock, bodies_in, delivery, store
from warehouse.home import Home
from warehouse.landing.inbox import ID_REUSED, Inbox

HOSTILE = b'{"id": "a\x1b[2Jb", "type": "events.created"'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


def listed(almanac: Almanac, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(almanac("inbox", "list", *words, "--json").stdout)
    return found


def test_the_list_has_the_newest_first_with_states_reasons_and_bodies(
    almanac: Almanac, home: Home
) -> None:
    store(home, START, delivery(1), HOSTILE, delivery(1, title="Other"))
    almanac("merge")
    store(home, START + timedelta(days=1), delivery(2))
    found = listed(almanac)
    assert [row["state"] for row in found] == ["waiting", "rejected", "rejected"]
    assert found[1]["reason"] == ID_REUSED
    assert (found[1]["id"], found[1]["event_id"]) == ("evt_dlv_1", "evt_1")
    assert found[0]["body"] == delivery(2).decode()
    assert len(listed(almanac, "--limit", "1")) == 1
    table = almanac("inbox", "list")
    assert ID_REUSED in " ".join(table.stdout.split())
    assert "1 wait to be landed. Next: almanac merge" in table.stdout
    assert "\x1b" not in table.output + almanac("inbox", "list", "--json").output


def test_only_rejected_deliveries_are_settled_and_a_wrong_name_changes_nothing(
    almanac: Almanac, home: Home
) -> None:
    store(home, START, delivery(1), delivery(1, title="Other"), b"[]")
    (waiting, *_) = Inbox(home).names()
    for command in ("retry", "dismiss"):
        assert "no rejected delivery" in almanac("inbox", command, waiting, code=1).stderr
        assert "give names" in almanac("inbox", command, code=2).stderr
        assert "give names" in almanac("inbox", command, waiting, "--all", code=2).stderr
    almanac("merge")
    reused, unreadable = Inbox(home).names("rejected")
    done = almanac("inbox", "retry", "--all").stdout
    assert f"{unreadable} stays" in done and "Landed: 1. Next: almanac merge" in done
    almanac("inbox", "dismiss", unreadable)
    assert bodies_in(home, "dismissed") == [b"[]"]
    assert [row["state"] for row in listed(almanac)] == ["dismissed"]
    assert reused not in Inbox(home).names("rejected")


def published(home: Home) -> int:
    if not home.warehouse.exists():
        return 0
    with reading(home) as connection:
        return int(connection.sql("SELECT count(*) FROM events").fetchall()[0][0])


@contextmanager
def merging(home: Home) -> Iterator[MergeThread]:
    thread = MergeThread(home, Clock().now)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_what_is_in_the_inbox_is_published_at_the_start_and_when_it_arrives(home: Home) -> None:
    store(home, START, delivery(1))
    with merging(home) as thread:
        wait_for(lambda: published(home) == 1)
        store(home, START, delivery(2))
        thread.wake()
        wait_for(lambda: published(home) == 2)
    assert Inbox(home).names() == []


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("unforeseen")], ids=str
)
def test_a_failure_is_logged_and_tried_again(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    failures, merge = [error, error], receiver.merge

    def fail_at_first(merged: Home) -> object:
        if failures:
            raise failures.pop()
        return merge(merged)

    monkeypatch.setattr(receiver, "merge", fail_at_first)
    monkeypatch.setattr(receiver, "MERGE_EVERY_S", 0.01)
    store(home, START, delivery(1))
    with merging(home):
        wait_for(lambda: published(home) == 1)
    logged = [record for record in caplog.records if record.msg.startswith("not merged")]
    assert len(logged) == 2
    assert all(bool(record.exc_info) == isinstance(error, RuntimeError) for record in logged)


PREFIX = ("market", "events")
MINUTE = timedelta(minutes=1)
WARN = dg.AssetCheckSeverity.WARN


def begun(path: Path) -> tuple[Settings, Home]:
    """Return a home that has a stamp and nothing else, as `almanac receive` leaves a new one."""
    settings = settings_of(path)
    home = Home(path)
    home.claim(settings.source)
    return settings, home


def definitions_at(settings: Settings, now: datetime = NOW) -> dg.Definitions:
    layout = make_layout(locate_home(settings), now, key_prefix=PREFIX)
    return build_definitions(settings, clock=lambda: now, layout=layout)


def run_job(
    settings: Settings, instance: dg.DagsterInstance, day: date = TODAY
) -> dg.ExecuteInProcessResult:
    job = definitions_at(settings).resolve_job_def("market_events_deliveries")
    return job.execute_in_process(
        instance=instance, partition_key=day.isoformat(), raise_on_error=False, run_config=QUIET
    )


def recorded(
    result: dg.ExecuteInProcessResult, asset: str, prefix: tuple[str, ...]
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
    with reading(home) as connection:
        return {title for (title,) in connection.sql("SELECT title FROM events").fetchall()}


def test_a_run_lands_merges_publishes_and_checks_before_the_first_pull_too(tmp_path: Path) -> None:
    settings, home = begun(tmp_path)
    # The layout of the run has no day before its today.
    store(home, NOW - timedelta(days=1), delivery(1), delivery(2))
    store(home, NOW, delivery(3), b"unreadable")
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(settings, instance)
        assert result.success
        landed = recorded(result, "landed_deliveries", PREFIX)
        assert landed.keys() == {YESTERDAY.isoformat(), TODAY.isoformat()}
        of_yesterday, of_today = landed[YESTERDAY.isoformat()], landed[TODAY.isoformat()]
        assert (of_yesterday["deliveries landed"], of_today["deliveries landed"]) == (2, 1)
        assert (of_yesterday["rows"], of_today["rows"]) == (2, 1)
        assert {of_yesterday["outcome"], of_today["outcome"]} == {"landed from the inbox"}
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


def tick(settings: Settings, instance: dg.DagsterInstance) -> dg.SensorResult:
    """Evaluate the sensor of a fresh daemon."""
    definitions = definitions_at(settings)
    sensor = definitions.resolve_sensor_def("market_events_merges")
    result = sensor(dg.build_sensor_context(instance=instance, definitions=definitions))
    assert isinstance(result, dg.SensorResult)
    return result


def requested(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(found.run_key, found.partition_key) for found in result.run_requests or ()]


def test_the_sensor_requests_one_run_of_today_while_deliveries_wait(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path)
    assert "Nothing to merge" in str(tick(settings, instance).skip_reason)
    store(home, NOW, delivery(1), delivery(2))
    ((_, day),) = requested(tick(settings, instance))
    assert day == TODAY.isoformat()


def test_no_run_is_requested_while_one_lands_or_merges(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, home = begun(tmp_path)
    store(home, NOW, delivery(1))
    definition = definitions_at(settings).resolve_job_def("market_events_daily")
    run = instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED)
    result = tick(settings, instance)
    assert requested(result) == []
    assert f"run {run.run_id[:8]} merges" in str(result.skip_reason)
    instance.report_run_canceled(run)
    assert len(requested(tick(settings, instance))) == 1


def decided(now: datetime) -> Decision:
    return decide_merge(Layout(), [], ["1"], JobHistory(), now=now, running=None, at_service=now)


def test_no_run_is_requested_just_before_midnight_that_would_land_on_the_next_day() -> None:
    before_midnight = datetime(2026, 3, 2, 23, 59, 10, tzinfo=UTC)
    decision = decided(before_midnight)
    assert decision.request is None
    assert "the day that begins soon" in decision.reason
    decision = decided(before_midnight + MINUTE)
    assert decision.request is not None
    assert decision.request.partition_key == "2026-03-03"
