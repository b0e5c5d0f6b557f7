"""The sensors that pull, resume and merge: what each requests, and its state over restarts."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.layout import Layout
from pipeline.automation.sensors import (
    Decision,
    JobHistory,
    decide_first_pull,
    decide_merge,
    decide_resume,
    was_day_pulled,
)
from pipeline.build import build_definitions
from resources.calendar_backfill import OpenBackfill
from resources.request_log import DeferredPull, DeferredPulls
from tests.pipeline.homes_in_days import opened_session, run_assets, settings_of
from tests.pipeline.small_home import DAY, NOW, PULLED, SmallHome
from warehouse.files.documents import put_note
from warehouse.home import Home
from warehouse.landing.batches import Feed

TODAY = NOW.date()
EARLY = datetime(2026, 3, 2, 0, 19, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
SOON = RESET + timedelta(minutes=1)
MINUTE = timedelta(minutes=1)
DONE = "done"


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


def tick(
    small: SmallHome,
    instance: dg.DagsterInstance,
    name: str = "pulls",
    now: datetime = NOW,
    cursor: str | None = None,
    **given: Any,
) -> dg.SensorResult:
    """Evaluate a sensor of a fresh daemon, which has only the cursor."""
    definitions = build_definitions(small.settings, clock=lambda: now, **given)
    context = dg.build_sensor_context(instance=instance, definitions=definitions, cursor=cursor)
    result = definitions.resolve_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    return result


def decide_first(
    now: datetime = NOW, *, running: str | None = None, last: JobHistory | None = None
) -> Decision:
    return decide_first_pull(Layout(), now, now=now, running=running, last=last or JobHistory())


def scheduled(small: SmallHome, day: int = 2) -> Any:
    definitions = build_definitions(small.settings, clock=lambda: NOW)
    at = datetime(2026, 3, day, 0, 20, tzinfo=UTC)
    context = dg.build_schedule_context(scheduled_execution_time=at)
    return definitions.resolve_schedule_def("daily_schedule")(context)


def test_a_new_home_pulls_today_at_once_and_two_starts_request_one_run(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    keys = set()
    for _ in range(2):
        (request,) = tick(small, instance).run_requests or []
        assert request.partition_key == TODAY.isoformat()
        keys.add(request.run_key)
    assert len(keys) == 1
    assert isinstance(scheduled(small), dg.RunRequest)


def test_a_day_that_almanac_run_landed_is_not_pulled_and_later_days_are_left_to_the_schedule(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    small.land()
    done = tick(small, instance)
    assert not done.run_requests
    assert "was pulled already" in str(scheduled(small).skip_message)
    later = tick(small, instance, now=NOW + 3 * DAY, cursor=done.cursor)
    assert not later.run_requests
    assert "the schedule pulls each day" in str(later.skip_reason)


def test_before_the_export_is_out_the_schedule_pulls(small: SmallHome) -> None:
    assert decide_first(running="abcdefgh").request is None
    decision = decide_first(EARLY)
    assert decision.request is None
    assert "The schedule pulls 2026-03-02 at 00:20 UTC." in decision.reason
    small.land(at=EARLY)
    assert isinstance(scheduled(small), dg.RunRequest)


def test_the_wait_after_failed_pulls_of_a_day_doubles_up_to_an_hour() -> None:
    once, often = JobHistory(NOW, failures=1), JobHistory(NOW, failures=8)
    soon = decide_first(NOW + 9 * MINUTE, last=once)
    assert soon.request is None
    assert "the next attempt is at 12:10 UTC" in soon.reason
    assert decide_first(NOW + 10 * MINUTE, last=once).request is not None
    assert decide_first(NOW + 59 * MINUTE, last=often).request is None
    assert decide_first(NOW + 60 * MINUTE, last=often).request is not None


def test_the_sensor_retries_the_failed_run_of_a_day_until_one_succeeds_or_is_cancelled(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    small.land()
    started = tick(small, instance)
    # Dagster dates the runs by the clock of this machine.
    noon = datetime.now(UTC).replace(hour=12) + DAY
    tomorrow_too = Layout(days_ahead=1)
    job = build_definitions(small.settings).resolve_job_def("daily")
    for status, expected in ((dg.DagsterRunStatus.FAILURE, 1), (dg.DagsterRunStatus.CANCELED, 0)):
        tags = {"dagster/partition": noon.date().isoformat()}
        instance.create_run_for_job(job, status=status, tags=tags)
        result = tick(small, instance, now=noon, cursor=started.cursor, layout=tomorrow_too)
        assert len(result.run_requests or ()) == expected


@pytest.mark.parametrize(
    ("plan", "feeds", "expected"),
    [
        ("elite", PULLED, True),
        ("elite", ("events", "cancellations", "coins"), False),
        ("free", ("events", "cancellations", "coins"), True),
        ("elite", ("export", "events", "cancellations"), False),
    ],
)
def test_a_day_is_pulled_if_all_feeds_of_the_plan_are_landed(
    small: SmallHome, plan: str, feeds: tuple[Feed, ...], expected: bool
) -> None:
    small.land(*feeds, plan=plan)
    small.land("export", "coins", why_incomplete="the quota is used up")
    assert was_day_pulled(small.home, TODAY) is expected
    assert not was_day_pulled(small.home, TODAY + DAY)


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


def decide_due(
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


def test_a_backfill_that_did_not_resume_for_a_week_is_abandoned() -> None:
    assert decide_due([], deferred_backfill(), RESET + timedelta(days=6)).request is not None
    assert decide_due([], deferred_backfill(), RESET + timedelta(days=8)).request is None


def test_no_run_is_requested_before_the_deferral_ends() -> None:
    for nothing in (decide_due([], None, NOW), decide_due([deferred_events("polls")], None, SOON)):
        assert nothing.reason == "Nothing is deferred."
    decision = decide_due([deferred_events()], deferred_backfill(RESET + timedelta(days=1)), NOW)
    assert decision.request is None
    assert decision.reason == "2 deferred; the first resumes at 2026-04-01 00:00 UTC."


def test_a_deferred_backfill_resumes_with_its_own_dates_and_source(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    daily = decide_due([deferred_events()], deferred_backfill(), SOON).request
    assert daily is not None, "a daily pull resumes before a backfill"
    assert (daily.job_name, daily.partition_key) == ("daily", "2026-04-01")
    assert decide_due([deferred_events()], deferred_backfill(), SOON, running="abc").request is None
    put_note(small.home.state_storage, "backfill.json", deferred_backfill())
    assert tick(small, instance, "pulls", cursor=DONE).run_requests == []
    (request,) = tick(small, instance, "pulls", SOON, DONE).run_requests or ()
    assert request.job_name == "calendar"
    assert request.tags["dagster/asset_partition_range_start"] == "2024-01-01"
    assert request.tags["dagster/asset_partition_range_end"] == "2024-06-01"
    config = request.run_config["ops"]["landed_calendar"]["config"]
    found = (config["begin"], config["end"], config["source"])
    assert found == ("2024-01-15", "2024-06-30", "list")


def test_a_daily_pull_deferred_by_the_quota_is_recorded_until_it_succeeds(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings, reset = settings_of(tmp_path), datetime(2019, 4, 1, tzinfo=UTC)
    notes, late = DeferredPulls(Home(tmp_path).state_storage), datetime(2019, 3, 31, tzinfo=UTC)
    with opened_session(settings, now=late) as (session, service):
        service.sandbox.faults.set("quota~/v2/events")
        materialise = partial(
            run_assets, settings, instance, "landed_events", layout=Layout(), catalog=session
        )
        assert materialise(partition=late.date()).success
        (note,) = notes.all()
        assert (note.work, note.feed, note.resume_at.date()) == ("daily", "events", reset.date())
        service.sandbox.faults.clear()
        service.sandbox.set_clock(reset + timedelta(hours=1))
        assert materialise(partition=reset.date()).success
    assert notes.all() == []


def test_a_due_pull_is_requested_once_and_again_only_after_a_wait(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    now = datetime.now(UTC)
    note = deferred_events(until=now)
    put_note(small.home.state_storage, note.name, note)
    (first,) = tick(small, instance, "pulls", now, DONE).run_requests or ()
    job = build_definitions(small.settings).resolve_job_def("daily")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=first.tags)
    second = tick(small, instance, "pulls", now + 2 * MINUTE, DONE)
    assert second.run_requests == []
    assert "the next attempt is at" in str(second.skip_reason)
    assert tick(small, instance, "pulls", now + 11 * MINUTE, DONE).run_requests


def decide_batches(
    pending: list[str], last: JobHistory, now: datetime = NOW, running: str | None = None
) -> Decision:
    return decide_merge(Layout(), pending, [], last, now=now, running=running, at_service=now)


def test_merges_are_a_minute_apart_and_the_wait_after_failures_doubles() -> None:
    busy = decide_batches(["one"], JobHistory(), running="0123456789")
    assert busy.request is None and "run 01234567 merges" in busy.reason
    assert decide_batches(["one"], JobHistory()).request is not None
    for failures, minutes in ((0, 1), (1, 1), (2, 2), (3, 4), (8, 60)):
        last = JobHistory(NOW, failures)
        before = decide_batches(["one"], last, NOW + minutes * MINUTE - timedelta(seconds=1))
        assert before.request is None and "the next run starts at" in before.reason
        assert decide_batches(["one"], last, NOW + minutes * MINUTE).request is not None


def test_a_merge_is_requested_for_a_landed_batch(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    empty = tick(small, instance, "merges")
    assert empty.run_requests == []
    assert "Nothing to merge" in str(empty.skip_reason)
    small.land("categories")
    (request,) = tick(small, instance, "merges").run_requests or ()
    assert request.job_name == "merge"
