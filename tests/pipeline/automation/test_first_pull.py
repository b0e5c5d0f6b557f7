"""A new deployment pulls today at once, once, and the schedule does not repeat it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.automation.pulls import FirstPullState, decide_first_pull, was_day_pulled
from pipeline.automation.run_decisions import Decision, JobHistory
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.small_home import DAY, NOW, PULLED, SmallHome
from warehouse.landing.batches import Feed

TODAY = NOW.date()
EARLY = datetime(2026, 3, 2, 0, 19, tzinfo=UTC)


def decide(state: FirstPullState, now: datetime = NOW, **given: Any) -> Decision:
    facts = {
        "was_pulled": False,
        "has_failed": False,
        "running": None,
        "last": JobHistory(),
        **given,
    }
    return decide_first_pull(now, state, now=now, **facts)


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


@pytest.fixture
def instance(small: SmallHome) -> Iterator[dg.DagsterInstance]:
    with instance_of(small.home) as instance:
        yield instance


def tick(
    small: SmallHome, instance: dg.DagsterInstance, cursor: str | None = None, now: datetime = NOW
) -> dg.SensorResult:
    definitions = build_definitions(small.settings, clock=lambda: now)
    context = dg.build_sensor_context(instance=instance, definitions=definitions, cursor=cursor)
    result = definitions.resolve_sensor_def("first_pull")(context)
    assert isinstance(result, dg.SensorResult)
    return result


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


def test_a_day_that_almanac_run_landed_is_not_pulled_by_sensor_or_schedule(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    assert isinstance(scheduled(small), dg.RunRequest)
    small.land()
    assert not tick(small, instance).run_requests
    assert "was pulled already" in str(scheduled(small).skip_message)


def test_later_days_are_left_to_the_schedule(
    small: SmallHome, instance: dg.DagsterInstance
) -> None:
    small.land()
    done = tick(small, instance)
    later = tick(small, instance, done.cursor, now=NOW + 3 * DAY)
    assert not later.run_requests
    assert "the schedule pulls each day" in str(later.skip_reason)


def test_before_the_export_is_out_the_schedule_pulls(small: SmallHome) -> None:
    decision = decide(FirstPullState(), EARLY)
    assert decision.request is None
    assert "The schedule pulls 2026-03-02 at 00:20 UTC." in decision.reason
    small.land(at=EARLY)
    assert isinstance(scheduled(small), dg.RunRequest)


def test_nothing_is_requested_while_a_daily_pull_runs() -> None:
    assert decide(FirstPullState(), running="abcdefgh").request is None


def test_a_failed_pull_is_requested_again_after_a_wait_that_doubles() -> None:
    state = FirstPullState(attempts=2)
    last = JobHistory(newest_at=NOW, failures=2)
    for minutes, is_requested in ((19, False), (20, True)):
        request = decide(state, NOW + timedelta(minutes=minutes), last=last).request
        assert (request is not None) is is_requested
    assert request is not None
    assert request.run_key == "2026-03-02-3"


def test_a_day_whose_run_failed_is_pulled_again_until_it_succeeds() -> None:
    state, last = FirstPullState(is_done=True, attempts=1), JobHistory(NOW, failures=1)
    assert decide(state, NOW + DAY, last=last).request is None
    soon = decide(state, NOW + timedelta(minutes=9), last=last, has_failed=True)
    assert soon.request is None
    assert "the next attempt is at 12:10 UTC" in soon.reason
    later = decide(state, NOW + timedelta(minutes=10), last=last, has_failed=True)
    assert later.request is not None
    assert later.request.run_key == "2026-03-02-2"
    assert decide(state, NOW + DAY / 4, last=last, has_failed=True, was_pulled=True).request is None
    often = JobHistory(NOW, failures=8)
    assert decide(state, NOW + timedelta(hours=1), last=often, has_failed=True).request is not None


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((dg.DagsterRunStatus.FAILURE,), True),
        ((dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS), False),
        ((dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED), False),
        ((), False),
    ],
)
def test_the_sensor_retries_the_failed_run_of_a_day_in_a_started_home(
    small: SmallHome,
    instance: dg.DagsterInstance,
    statuses: tuple[dg.DagsterRunStatus, ...],
    expected: bool,
) -> None:
    small.land()
    started = tick(small, instance)
    # Dagster dates the runs by the clock of this machine.
    noon = datetime.now(UTC).replace(hour=12) + DAY
    job = build_definitions(small.settings).resolve_job_def("daily")
    for status in statuses:
        tags = {"dagster/partition": noon.date().isoformat()}
        instance.create_run_for_job(job, status=status, tags=tags)
    result = tick(small, instance, started.cursor, now=noon)
    assert bool(result.run_requests) is expected


@pytest.mark.parametrize(
    ("plan", "feeds", "expected"),
    [
        ("elite", PULLED, True),
        ("elite", ("events", "cancellations", "coins"), False),
        ("free", ("events", "cancellations", "coins"), True),
        ("elite", ("export", "events", "cancellations"), False),
        ("elite", ("events",), False),
    ],
)
def test_a_day_is_pulled_if_all_feeds_of_the_plan_are_landed(
    small: SmallHome, plan: str, feeds: tuple[Feed, ...], expected: bool
) -> None:
    small.land(*feeds, plan=plan)
    assert was_day_pulled(small.home, TODAY) is expected
    assert not was_day_pulled(small.home, TODAY + DAY)


def test_an_incomplete_pull_does_not_count(small: SmallHome) -> None:
    small.land("export", "cancellations", "coins")
    small.land("events", why_incomplete="the quota is used up")
    assert not was_day_pulled(small.home, TODAY)
