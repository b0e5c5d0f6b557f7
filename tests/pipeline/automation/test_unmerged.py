"""The sensor of unmerged batches: what it requests, and its state over restarts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
from dagster import build_sensor_context

from pipeline.automation.merges import MergeState, decide_merge
from pipeline.automation.run_decisions import Decision
from pipeline.build import build_definitions
from tests.pipeline.homes_in_days import land_empty_list, settings_of
from warehouse.home import Home

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def remembered(decision: Decision) -> MergeState:
    assert isinstance(decision.state, MergeState)
    return decision.state


def test_no_merge_is_requested_where_no_batch_waits() -> None:
    decision = decide_merge([], MergeState(waiting="a", attempt=3, at=NOW), now=NOW, running=None)
    assert decision.request is None
    assert decision.state == MergeState()
    assert decision.reason == "Nothing to merge."


def test_a_merge_of_the_same_batches_is_requested_after_a_wait_that_doubles() -> None:
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


def test_a_merge_of_other_batches_starts_with_attempt_1() -> None:
    first = decide_merge(["one"], MergeState(), now=NOW, running=None)
    second = decide_merge(["one", "two"], remembered(first), now=NOW, running=None)
    assert first.request is not None
    assert second.request is not None
    assert second.request.run_key != first.request.run_key
    assert remembered(second).attempt == 1


def test_no_merge_is_requested_while_a_run_merges() -> None:
    decision = decide_merge(["one"], MergeState(), now=NOW, running="0123456789")
    assert decision.request is None
    assert "run 01234567 merges" in decision.reason


def tick(path: Path, instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult:
    """Evaluate the sensor of a fresh daemon, which has only the cursor."""
    definitions = build_definitions(settings_of(path), clock=lambda: NOW)
    sensor = definitions.resolve_sensor_def("unmerged_batches")
    context = build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_a_restarted_daemon_requests_one_merge_for_a_landed_batch(
    tmp_path: Path,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        empty = tick(tmp_path, instance, None)
        assert empty.run_requests == []
        assert empty.skip_reason is not None
        land_empty_list(Home(tmp_path), NOW, "categories")
        first = tick(tmp_path, instance, empty.cursor)
        assert first.run_requests is not None
        assert len(first.run_requests) == 1
        second = tick(tmp_path, instance, first.cursor)
        assert second.run_requests == []
        assert "attempt 1 failed to merge" in str(second.skip_reason)


def test_an_unreadable_cursor_counts_as_none(tmp_path: Path) -> None:
    land_empty_list(Home(tmp_path), NOW, "categories")
    with dg.DagsterInstance.ephemeral() as instance:
        result = tick(tmp_path, instance, "{not json")
        assert result.run_requests is not None
        assert len(result.run_requests) == 1


def test_the_schedule_runs_today_and_skips_a_missed_day(tmp_path: Path) -> None:
    definitions = build_definitions(settings_of(tmp_path), clock=lambda: NOW)
    schedule = definitions.resolve_schedule_def("daily_schedule")
    for day, expected in ((2, dg.RunRequest), (1, dg.SkipReason)):
        context = dg.build_schedule_context(
            scheduled_execution_time=datetime(2026, 3, day, 0, 20, tzinfo=UTC)
        )
        assert isinstance(schedule(context), expected)
