"""The warnings as asset checks in Dagster's UI, the sensor, and its note of failed runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat
from pydantic import SecretStr

from assets.layout import Layout
from catalog.sandbox.sandbox import Sandbox
from pipeline.automation.health import health_checks, health_sensor, write_run_note
from pipeline.build import build_definitions
from pipeline.health.facts import RUN_NOTE, RunNote
from pipeline.health.warnings import WARNINGS, read_health
from pipeline.instance import OWNER_TAG, instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.health.receiving import receiving
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import DAY, PULLED, SmallHome
from warehouse.files.documents import read_note
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime.now(UTC)
LAYOUT = Layout(key_prefix=("almanac",), name_prefix="almanac_")
EVENTS = LAYOUT.key("events")
MERGED = dg.AssetCheckKey(EVENTS, "batches")


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    """A home with a batch that should have been merged an hour ago."""
    (tmp_path / "home").mkdir(mode=0o700)
    small = SmallHome(tmp_path / "home", key_prefix=("almanac",), name_prefix="almanac_")
    small.land(*PULLED, at=NOW - DAY)
    merge(small.home)
    small.land("coins", at=NOW - timedelta(hours=2))
    return small


def tick(small: SmallHome, instance: dg.DagsterInstance) -> dg.SensorResult:
    """Evaluate the sensor, and store the events that it reports, as the daemon does."""
    sensor = health_sensor(LAYOUT, small.settings, small.home, lambda: NOW)
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult) and not result.run_requests
    for event in evaluations(result).values():
        instance.report_runless_asset_event(event)
    return result


def evaluations(result: dg.SensorResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {
        event.check_name: event
        for event in result.asset_events
        if isinstance(event, dg.AssetCheckEvaluation)
    }


def test_the_sensor_reports_a_warning_when_it_begins_and_when_it_ends(small: SmallHome) -> None:
    with instance_of(small.home) as instance:
        first = tick(small, instance)
        skipped = first.skip_reason
        assert isinstance(skipped, dg.SkipReason)
        assert skipped.skip_message == "Warnings: batches. Next check in 5 min."
        reported = evaluations(first)
        assert reported.keys() == WARNINGS.keys()
        assert [name for name, each in reported.items() if not each.passed] == ["batches"]
        assert "almanac merge" in str(reported["batches"].description)
        assert tick(small, instance).asset_events == []
        merge(small.home)
        assert [each.passed for each in evaluations(tick(small, instance)).values()] == [True]
        history = instance.event_log_storage.get_asset_check_execution_history(MERGED, limit=5)
        assert [record.status.value for record in history] == ["SUCCEEDED", "FAILED"]
        assert tick(small, instance).asset_events == []
        # A run evaluated the check while its own work still counted as failed.
        instance.report_runless_asset_event(reported["batches"])
        assert evaluations(tick(small, instance))["batches"].passed


def test_a_check_that_a_run_skipped_is_reported_again_at_the_next_tick(small: SmallHome) -> None:
    """The UI shows a planned check whose step did not run as skipped."""

    @dg.asset(key=EVENTS)
    def failing() -> None:
        raise dg.Failure("no publication", allow_retries=False)

    checks = health_checks(LAYOUT, small.settings, small.home, lambda: NOW)
    job = dg.Definitions(assets=[failing], asset_checks=[checks])
    with instance_of(small.home) as instance:
        tick(small, instance)
        assert tick(small, instance).asset_events == []
        done = job.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, raise_on_error=False, run_config=QUIET
        )
        assert not done.success and not done.get_asset_check_evaluations()
        history = instance.event_log_storage.get_asset_check_execution_history(MERGED, limit=1)
        assert history[0].status.value == "PLANNED"
        again = evaluations(tick(small, instance))
        assert not again["batches"].passed and again["work"].passed
        assert tick(small, instance).asset_events == []


def test_the_checks_can_be_run_by_a_person(small: SmallHome) -> None:
    checks = health_checks(LAYOUT, small.settings, small.home, lambda: NOW)
    found = dg.Definitions(asset_checks=[checks]).resolve_implicit_global_asset_job_def()
    result = found.execute_in_process(run_config=QUIET)
    shown = {each.check_name: each for each in result.get_asset_check_evaluations()}
    assert [name for name, each in shown.items() if not each.passed] == ["batches"]
    assert "almanac merge" in str(shown["batches"].description)


def test_the_sensor_posts_what_changed_and_posts_again_what_was_refused(small: SmallHome) -> None:
    with receiving() as receiver, instance_of(small.home) as instance:
        small.settings = small.settings.model_copy(update={"alert_url": SecretStr(receiver.url)})
        receiver.status = 500
        assert "the response was 500" in str(tick(small, instance).skip_reason)
        receiver.status = 200
        assert "Posted: +batches." in str(tick(small, instance).skip_reason)
        assert "Posted: nothing." in str(tick(small, instance).skip_reason)
        merge(small.home)
        assert "Posted: -batches." in str(tick(small, instance).skip_reason)
    assert [body["resolved"] for body in receiver.bodies] == [[], ["batches"]]


def end(
    small: SmallHome, instance: dg.DagsterInstance, part: str, error: str = "", **tags: str
) -> None:
    """Execute a run of the daily job for a day."""

    @dg.op
    def step() -> None:
        if error:
            raise OSError(error)

    given = {OWNER_TAG: "almanac/almanac_almanac", "dagster/partition": part, **tags}

    @dg.job(name="almanac_daily", tags=given)
    def work() -> None:
        step()

    work.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)


def note(small: SmallHome, instance: dg.DagsterInstance) -> RunNote:
    write_run_note(small.home, small.settings, instance, datetime.now(UTC))
    found = read_health(small.settings, small.home, datetime.now(UTC)).runs
    assert found is not None
    return found


def test_a_failed_run_is_noted_until_the_same_partition_succeeds(small: SmallHome) -> None:
    with instance_of(small.home) as instance:
        end(small, instance, "2026-03-01", "no space")
        end(small, instance, "2026-03-02", "of other code", **{OWNER_TAG: "another"})
        (failed,) = note(small, instance).failed
        assert (failed.job, failed.part) == ("almanac_daily", "2026-03-01")
        end(small, instance, "2026-03-03")
        assert len(note(small, instance).failed) == 1
        end(small, instance, "2026-03-01")
        assert note(small, instance).failed == ()


def test_the_last_report_of_the_daemon_is_noted(small: SmallHome) -> None:
    at = datetime.now(UTC) - timedelta(minutes=20)
    with instance_of(small.home) as instance:
        assert note(small, instance).daemon_at is None
        instance.add_daemon_heartbeat(DaemonHeartbeat(at.timestamp(), "SENSOR", None, []))
        assert note(small, instance).daemon_at == at


def test_runs_of_the_jobs_do_not_evaluate_the_warnings(small: SmallHome) -> None:
    definitions = build_definitions(small.settings)
    for name in ("almanac_daily", "almanac_merge"):
        steps = {node.name for node in definitions.resolve_job_def(name).nodes}
        assert steps and "almanac_health" not in steps


def test_almanac_run_writes_the_note_of_failed_runs(
    almanac: Almanac, almanac_sandbox: Sandbox, tmp_path: Path
) -> None:
    given = {
        **{"base_url": almanac_sandbox.base_url, "home": str(tmp_path / "home")},
        **{"api_key": almanac_sandbox.new_key("enterprise"), "coins": "bitcoin"},
        **{"plan": "elite", "max_clock_skew_days": "3"},
    }
    almanac("run", **given)
    note = read_note(Home(tmp_path / "home").state_storage, RUN_NOTE, RunNote)
    assert note is not None and note.failed == () and note.daemon_at is None
    assert "Failed runs" in almanac("status", **given).stdout
