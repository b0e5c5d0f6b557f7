"""What is put off goes on by itself; cancellations that nobody looks at are looked at."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from dagster import build_sensor_context

from assets.calendar import EVENT_MONTHS
from pipeline.automation.resume import decide_resume
from pipeline.automation.runs import Decision, LastRuns
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from resources.backfill.state import BackfillState, BackfillStates
from resources.deferrals import DeferredPull, DeferredPulls
from tests.pipeline.homes_in_days import open_door, run_assets, settings_of
from warehouse.files.storage import Storage
from warehouse.home import Home
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Pull

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
RESET = datetime(2026, 4, 1, tzinfo=UTC)
SOON = RESET + timedelta(minutes=1)


def put_off(work: Any = "daily", until: datetime = RESET) -> DeferredPull:
    return DeferredPull(work=work, feed="events", noted_at=NOW, resume_at=until, why="used up")


def swept(until: datetime | None = RESET) -> BackfillState:
    scope = Scope(
        lower=datetime(2024, 1, 15, tzinfo=UTC), upper=datetime(2024, 6, 30, 23, tzinfo=UTC)
    )
    return BackfillState(
        scope=scope, plan="elite", source="s", started_at=NOW, resume_at=until, why="used up"
    )


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
    """One tick of a daemon that has just been started: its run requests, or why there are none."""
    definitions = build_definitions(settings_of(home.root), clock=lambda: now)
    context = build_sensor_context(instance=instance, definitions=definitions)
    result = definitions.resolve_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    reason = "" if result.skip_reason is None else str(result.skip_reason.skip_message)
    return list(result.run_requests or []), reason


def decide(
    deferrals: list[DeferredPull],
    backfills: list[BackfillState],
    now: datetime,
    *,
    running: str | None = None,
) -> Decision:
    """Decide where service and machine agree on the time, and no run was requested before."""
    return decide_resume(
        deferrals, backfills, now, now=now, running=running, last=lambda _: LastRuns()
    )


def test_nothing_put_off_is_nothing_to_do() -> None:
    assert decide([], [], NOW).reason == "Nothing is deferred."
    assert decide([], [swept(None)], NOW).reason == "Nothing is deferred."


def test_a_backfill_that_does_not_go_on_for_a_week_is_left_to_a_person() -> None:
    assert decide([], [swept()], RESET + timedelta(days=6)).request is not None
    assert decide([], [swept()], RESET + timedelta(days=8)).request is None


def test_it_waits_until_the_time_named_and_says_so() -> None:
    decision = decide([put_off()], [swept(RESET + timedelta(days=1))], NOW)
    assert decision.request is None
    assert decision.reason == "2 deferred; the first resumes at 2026-04-01 00:00 UTC."


def test_the_days_look_goes_first_and_a_run_under_way_is_waited_for() -> None:
    daily = decide([put_off()], [swept()], SOON).request
    rest = decide([], [swept()], SOON).request
    assert daily is not None
    assert rest is not None
    assert (daily.job_name, daily.partition_key) == ("daily", "2026-04-01")
    assert rest.job_name == "calendar"
    assert rest.run_config["ops"]["landed_calendar"]["config"]["source"] == swept().by
    assert decide([put_off()], [swept()], SOON, running="abc").request is None


def test_a_poll_that_was_put_off_is_left_to_the_plan_of_polls() -> None:
    assert decide([put_off("polls")], [], SOON).reason == "Nothing is deferred."


def test_a_days_look_is_asked_for_again_after_the_reset(
    home: Home, instance: dg.DagsterInstance
) -> None:
    DeferredPulls(Storage(home.state)).note(put_off())
    assert tick(home, instance, "quota", NOW)[0] == []
    ((request,), _) = tick(home, instance, "quota", SOON)
    assert (request.job_name, request.partition_key) == ("daily", "2026-04-01")


def test_a_backfill_is_gone_on_with_for_exactly_what_it_lacks(
    home: Home, instance: dg.DagsterInstance
) -> None:
    BackfillStates(Storage(home.state), home.landing).put(swept())
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


def test_a_days_look_that_the_quota_ends_is_noted_until_it_succeeds(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    notes = DeferredPulls(Storage(Home(tmp_path).state))
    with (
        instance_of(Home(tmp_path)) as instance,
        open_door(settings, now=NOW) as (door, service),
    ):
        service.sandbox.faults.set("quota~/v2/events")
        look = partial(run_assets, settings, instance, "landed_events", partition=NOW.date())
        assert look(catalog=door).success
        (note,) = notes.all()
        assert (note.work, note.feed, note.resume_at.date()) == ("daily", "events", RESET.date())
        service.sandbox.faults.clear()
        assert look(catalog=door).success
    assert notes.all() == []


def test_a_note_of_a_feed_that_left_the_plan_is_forgotten(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, plan="pro")
    notes = DeferredPulls(Storage(Home(tmp_path).state))
    notes.note(msgspec.structs.replace(put_off(), feed="export"))
    with (
        instance_of(Home(tmp_path)) as instance,
        open_door(settings, now=NOW) as (door, _),
    ):
        day = NOW.date()
        assert run_assets(settings, instance, "landed_export", partition=day, catalog=door).success
    assert notes.all() == []


def test_what_is_due_is_asked_for_once_and_again_only_after_a_while(
    home: Home, instance: dg.DagsterInstance
) -> None:
    now = datetime.now(UTC)
    DeferredPulls(Storage(home.state)).note(put_off(until=now))
    ((first,), _) = tick(home, instance, "quota", now)
    job = build_definitions(settings_of(home.root)).resolve_job_def("daily")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=first.tags)
    requests, said = tick(home, instance, "quota", now + timedelta(minutes=2))
    assert requests == []
    assert "the next attempt is at" in said
    assert tick(home, instance, "quota", now + timedelta(minutes=11))[0]


def test_dates_beyond_the_partitions_are_gone_on_with_all_the_same(
    home: Home, instance: dg.DagsterInstance
) -> None:
    far = Scope(lower=datetime(2190, 1, 1, tzinfo=UTC), upper=datetime(2190, 5, 1, tzinfo=UTC))
    note = msgspec.structs.replace(swept(), scope=far)
    BackfillStates(Storage(home.state), home.landing).put(note)
    ((request,), _) = tick(home, instance, "quota", SOON)
    tags = request.tags
    month = tags["dagster/asset_partition_range_start"]
    assert month == tags["dagster/asset_partition_range_end"]
    assert month in EVENT_MONTHS.get_partition_keys()
    assert request.run_config["ops"]["landed_calendar"]["config"]["begin"] == "2190-01-01"


def test_damaged_notes_are_none(home: Home) -> None:
    state = Storage(home.state)
    state.put("deferred/daily-events.json", b"{")
    state.put("sweeps/x.json", b"[]")
    assert DeferredPulls(state).all() == []
    assert BackfillStates(state, home.landing).open(NOW) == []


def land_cancellations(home: Home, at: datetime, *, why_incomplete: str | None = None) -> None:
    home.landing.land(
        Pull(
            feed="cancellations",
            scope=Scope(since=at - timedelta(days=90)),
            plan="elite",
            source="sandbox:1",
            observed_at=at,
            content_at=at,
            landed_at=at,
            requests=1,
            why_incomplete=why_incomplete,
        ),
        [(b'{"data": [], "meta": {"total": 0}}', None)],
    )


def test_cancellations_that_were_looked_at_lately_are_left_alone(
    home: Home, instance: dg.DagsterInstance
) -> None:
    land_cancellations(home, NOW - timedelta(hours=47))
    requests, said = tick(home, instance, "cancellations", NOW)
    assert requests == []
    assert said == "Pulled at 2026-03-29 13:00 UTC; no new pull needed yet."


def test_cancellations_that_nobody_looked_at_for_two_days_are_asked_for(
    home: Home, instance: dg.DagsterInstance
) -> None:
    land_cancellations(home, NOW - timedelta(hours=49))
    land_cancellations(home, NOW - timedelta(hours=1), why_incomplete="cut short")
    ((request,), _) = tick(home, instance, "cancellations", NOW)
    config = request.run_config["ops"]["look_again"]["config"]
    assert config["cancellations"] is True
    assert config["since"] == "2026-03-28T11:00:00+00:00"
    assert config["as_daily"] is True, "polls may have no share left"


def test_a_home_in_which_nothing_was_looked_at_is_left_alone(tmp_path: Path) -> None:
    with instance_of(Home(tmp_path)) as instance:
        requests, said = tick(Home(tmp_path), instance, "cancellations", NOW)
    assert requests == []
    assert "almanac run" in said
