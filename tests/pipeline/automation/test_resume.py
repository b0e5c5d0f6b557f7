"""Deferred work resumes by itself; cancellations that were not pulled for long are requested."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from dagster import build_sensor_context

from assets.landed_calendar import EVENT_MONTHS
from assets.layout import Layout
from pipeline.automation.pulls import decide_resume
from pipeline.automation.run_decisions import Decision, JobHistory
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from resources.calendar_backfill import OpenBackfill, read_open_backfill
from resources.request_log import DeferredPull, DeferredPulls
from tests.pipeline.homes_in_days import opened_session, run_assets, settings_of
from warehouse.files.documents import put_note
from warehouse.files.storage import Storage
from warehouse.home import Home

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
SOON = RESET + timedelta(minutes=1)


def deferred_events(work: Any = "daily", until: datetime = RESET) -> DeferredPull:
    return DeferredPull(work=work, feed="events", noted_at=NOW, resume_at=until, why="used up")


def deferred_backfill(until: datetime | None = RESET) -> OpenBackfill:
    return OpenBackfill(
        first=date(2024, 1, 15),
        last=date(2024, 6, 30),
        plan="elite",
        source="s",
        started_at=NOW,
        resumed_at=NOW,
        resume_at=until,
        why="used up",
    )


def note_backfill(home: Home, backfill: OpenBackfill) -> None:
    put_note(home.state_storage, "backfill.json", backfill)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.claim("sandbox:1")
    return home


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with instance_of(home) as instance:
        yield instance


def tick(
    home: Home, instance: dg.DagsterInstance, name: str, now: datetime
) -> tuple[list[dg.RunRequest], str]:
    """Evaluate a sensor of a fresh daemon; return its run requests, and the reason for none."""
    definitions = build_definitions(settings_of(home.root), clock=lambda: now)
    context = build_sensor_context(instance=instance, definitions=definitions)
    result = definitions.resolve_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    reason = "" if result.skip_reason is None else str(result.skip_reason.skip_message)
    return list(result.run_requests or []), reason


def decide(
    deferrals: list[DeferredPull],
    backfill: OpenBackfill | None,
    now: datetime,
    *,
    running: str | None = None,
) -> Decision:
    """Decide with equal clocks of service and machine, and no earlier run."""
    return decide_resume(
        Layout(), deferrals, backfill, now, now=now, running=running, last=lambda _: JobHistory()
    )


def test_no_run_is_requested_where_nothing_is_deferred() -> None:
    assert decide([], None, NOW).reason == "Nothing is deferred."
    assert decide([], deferred_backfill(None), NOW).reason == "Nothing is deferred."


def test_a_backfill_that_did_not_resume_for_a_week_is_abandoned() -> None:
    assert decide([], deferred_backfill(), RESET + timedelta(days=6)).request is not None
    assert decide([], deferred_backfill(), RESET + timedelta(days=8)).request is None


def test_no_run_is_requested_before_the_deferral_ends() -> None:
    decision = decide([deferred_events()], deferred_backfill(RESET + timedelta(days=1)), NOW)
    assert decision.request is None
    assert decision.reason == "2 deferred; the first resumes at 2026-04-01 00:00 UTC."


def test_a_daily_pull_resumes_before_a_backfill_and_never_during_a_run() -> None:
    daily = decide([deferred_events()], deferred_backfill(), SOON).request
    rest = decide([], deferred_backfill(), SOON).request
    assert daily is not None
    assert rest is not None
    assert (daily.job_name, daily.partition_key) == ("daily", "2026-04-01")
    assert rest.job_name == "calendar"
    assert rest.run_config["ops"]["landed_calendar"]["config"]["source"] == deferred_backfill().by
    assert decide([deferred_events()], deferred_backfill(), SOON, running="abc").request is None


def test_a_deferred_poll_is_left_to_the_poll_plan() -> None:
    assert decide([deferred_events("polls")], None, SOON).reason == "Nothing is deferred."


def test_a_deferred_daily_pull_is_requested_after_the_reset(
    home: Home, instance: dg.DagsterInstance
) -> None:
    DeferredPulls(Storage(home.state)).note(deferred_events())
    assert tick(home, instance, "quota", NOW)[0] == []
    ((request,), _) = tick(home, instance, "quota", SOON)
    assert (request.job_name, request.partition_key) == ("daily", "2026-04-01")


def test_a_deferred_backfill_resumes_with_its_own_dates_and_source(
    home: Home, instance: dg.DagsterInstance
) -> None:
    note_backfill(home, deferred_backfill())
    ((request,), _) = tick(home, instance, "quota", SOON)
    assert request.job_name == "calendar"
    assert request.tags["dagster/asset_partition_range_start"] == "2024-01-01"
    assert request.tags["dagster/asset_partition_range_end"] == "2024-06-01"
    config = request.run_config["ops"]["landed_calendar"]["config"]
    assert (config["begin"], config["end"], config["source"]) == (
        "2024-01-15",
        "2024-06-30",
        "list",
    )


def test_a_daily_pull_deferred_by_the_quota_is_recorded_until_it_succeeds(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    notes = DeferredPulls(Storage(Home(tmp_path).state))
    with (
        instance_of(Home(tmp_path)) as instance,
        opened_session(settings, now=NOW) as (session, service),
    ):
        service.sandbox.faults.set("quota~/v2/events")
        materialise = partial(
            *(run_assets, settings, instance, "landed_events"), layout=Layout(), catalog=session
        )
        assert materialise(partition=NOW.date()).success
        (note,) = notes.all()
        assert (note.work, note.feed, note.resume_at.date()) == ("daily", "events", RESET.date())
        service.sandbox.faults.clear()
        service.sandbox.set_clock(RESET + timedelta(hours=1))
        assert materialise(partition=RESET.date()).success
    assert notes.all() == []


def test_the_deferral_of_a_feed_that_left_the_plan_is_removed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, plan="pro")
    notes = DeferredPulls(Storage(Home(tmp_path).state))
    notes.note(msgspec.structs.replace(deferred_events(), feed="export"))
    with (
        instance_of(Home(tmp_path)) as instance,
        opened_session(settings, now=NOW) as (session, _),
    ):
        day = NOW.date()
        assert run_assets(
            settings, instance, "landed_export", partition=day, catalog=session, layout=Layout()
        ).success
    assert notes.all() == []


def test_a_due_pull_is_requested_once_and_again_only_after_a_wait(
    home: Home, instance: dg.DagsterInstance
) -> None:
    now = datetime.now(UTC)
    DeferredPulls(Storage(home.state)).note(deferred_events(until=now))
    ((first,), _) = tick(home, instance, "quota", now)
    job = build_definitions(settings_of(home.root)).resolve_job_def("daily")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=first.tags)
    requests, reason = tick(home, instance, "quota", now + timedelta(minutes=2))
    assert requests == []
    assert "the next attempt is at" in reason
    assert tick(home, instance, "quota", now + timedelta(minutes=11))[0]


def test_a_backfill_of_dates_beyond_the_partitions_resumes(
    home: Home, instance: dg.DagsterInstance
) -> None:
    far = {"first": date(2190, 1, 1), "last": date(2190, 5, 1)}
    note_backfill(home, msgspec.structs.replace(deferred_backfill(), **far))
    ((request,), _) = tick(home, instance, "quota", SOON)
    tags = request.tags
    month = tags["dagster/asset_partition_range_start"]
    assert month == tags["dagster/asset_partition_range_end"]
    assert month in EVENT_MONTHS.get_partition_keys()
    assert request.run_config["ops"]["landed_calendar"]["config"]["begin"] == "2190-01-01"


def test_damaged_notes_count_as_no_notes(home: Home) -> None:
    state = Storage(home.state)
    state.put("deferred/daily-events.json", b"{")
    state.put("backfill.json", b"[]")
    assert DeferredPulls(state).all() == []
    assert read_open_backfill(state, NOW) is None
