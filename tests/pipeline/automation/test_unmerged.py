"""The sensor of unmerged batches: what it asks for, and what it remembers over restarts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
from dagster import build_sensor_context

from pipeline.automation.runs import Decision
from pipeline.automation.unmerged import MergeState, decide_merge
from pipeline.build import build_definitions
from tests.pipeline.homes_in_days import settings_of
from warehouse.home import Home
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Pull

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def remembered(decision: Decision) -> MergeState:
    assert isinstance(decision.state, MergeState)
    return decision.state


def test_nothing_waits_nothing_is_asked_and_it_says_when_it_looks_again() -> None:
    decision = decide_merge([], MergeState(waiting="a", attempt=3, at=NOW), now=NOW, running=None)
    assert decision.request is None
    assert decision.state == MergeState()
    assert "Next check in 30 s" in decision.reason


def test_the_same_batches_are_asked_for_again_after_a_wait_that_doubles() -> None:
    keys, state, now = [], MergeState(), NOW
    for _ in range(8 * 60):
        decision = decide_merge(["one"], state, now=now, running=None)
        if decision.request is not None:
            keys.append((decision.request.run_key, int((now - NOW).total_seconds()) // 60))
        else:
            assert "The next one is at" in decision.reason
        state, now = remembered(decision), now + timedelta(minutes=1)
    assert len({key for key, _ in keys}) == len(keys)
    assert [minute for _, minute in keys[:7]] == [0, 1, 3, 7, 15, 31, 63]
    assert keys[-1][1] - keys[-2][1] == 60


def test_other_batches_begin_anew() -> None:
    first = decide_merge(["one"], MergeState(), now=NOW, running=None)
    second = decide_merge(["one", "two"], remembered(first), now=NOW, running=None)
    assert first.request is not None
    assert second.request is not None
    assert second.request.run_key != first.request.run_key
    assert remembered(second).attempt == 1


def test_a_run_under_way_is_waited_for() -> None:
    decision = decide_merge(["one"], MergeState(), now=NOW, running="0123456789")
    assert decision.request is None
    assert "run 01234567 merges" in decision.reason


def land(home: Home) -> None:
    home.landing.land(
        Pull(
            feed="categories",
            scope=Scope(),
            plan="elite",
            source="test",
            observed_at=NOW,
            content_at=NOW,
            landed_at=NOW,
            requests=1,
        ),
        [(b'{"data": []}', None)],
    )


def tick(path: Path, instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult:
    """One tick of a daemon that has just been started: nothing is kept but the cursor."""
    definitions = build_definitions(settings_of(path), clock=lambda: NOW)
    sensor = definitions.resolve_sensor_def("unmerged_batches")
    context = build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_a_restarted_daemon_does_not_ask_twice_and_a_landed_batch_is_asked_for_once(
    tmp_path: Path,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        empty = tick(tmp_path, instance, None)
        assert empty.run_requests == []
        assert empty.skip_reason is not None
        land(Home(tmp_path))
        first = tick(tmp_path, instance, empty.cursor)
        assert first.run_requests is not None
        assert len(first.run_requests) == 1
        again = tick(tmp_path, instance, first.cursor)
        assert again.run_requests == []
        assert "attempt 1 failed to merge" in str(again.skip_reason)


def test_an_unreadable_cursor_begins_anew(tmp_path: Path) -> None:
    land(Home(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        result = tick(tmp_path, instance, "{not json")
        assert result.run_requests is not None
        assert len(result.run_requests) == 1


def test_the_schedule_looks_at_today_and_skips_a_day_that_was_missed(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path), clock=lambda: NOW)
    schedule = definitions.resolve_schedule_def("daily_schedule")
    for day, expected in ((2, dg.RunRequest), (1, dg.SkipReason)):
        context = dg.build_schedule_context(
            scheduled_execution_time=datetime(2026, 3, day, 0, 20, tzinfo=UTC)
        )
        assert isinstance(schedule(context), expected)
