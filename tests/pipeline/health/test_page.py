"""The warnings as asset checks in Dagster's UI, and the sensor that reports them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets.layout import Layout
from catalog.sandbox.sandbox import Sandbox
from pipeline.automation.health import health_checks, health_sensor
from pipeline.build import build_definitions
from pipeline.health.checks import CHECKS, TOPICS, read_health
from pipeline.health.runs import read_run_note
from pipeline.instance import OWNER_TAG, instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import QUIET
from tests.pipeline.small_home import PULLED, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime.now(UTC)
LAYOUT = Layout(key_prefix=("almanac",), name_prefix="almanac_")
EVENTS = LAYOUT.key("events")
FRESHNESS = dg.AssetCheckKey(EVENTS, "freshness")


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    """A home with batches that should have been merged an hour ago."""
    small = SmallHome(tmp_path / "home", key_prefix=("almanac",), name_prefix="almanac_")
    small.land(*PULLED, at=NOW - timedelta(hours=2))
    return small


def tick(
    small: SmallHome, instance: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorResult:
    """Evaluate the sensor, and store the events that it reports, as the daemon does."""
    sensor = health_sensor(LAYOUT, small.settings, small.home, lambda: NOW, {"polls"})
    result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
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


def test_every_check_has_a_topic_and_every_topic_a_check() -> None:
    assert {check.topic for check in CHECKS} == set(TOPICS)
    assert len({check.kind for check in CHECKS}) == len(CHECKS)


def test_the_sensor_reports_a_warning_when_it_begins_and_when_it_ends(small: SmallHome) -> None:
    with instance_of(small.home) as instance:
        first = tick(small, instance)
        assert first.skip_reason == dg.SkipReason("Warnings: unpublished. Next check in 5 min.")
        reported = evaluations(first)
        assert reported.keys() == set(TOPICS)
        assert {name for name, each in reported.items() if not each.passed} == {"freshness"}
        raised = reported["freshness"]
        assert raised.severity is dg.AssetCheckSeverity.ERROR
        assert "almanac merge" in str(raised.metadata["what to do"].value)
        again = tick(small, instance, first.cursor)
        assert again.asset_events == []
        merge(small.home)
        done = tick(small, instance, again.cursor)
        assert [each.passed for each in evaluations(done).values()] == [True]
        history = instance.event_log_storage.get_asset_check_execution_history(FRESHNESS, limit=5)
        assert [record.status.value for record in history] == ["SUCCEEDED", "FAILED"]
        assert tick(small, instance, done.cursor).asset_events == []
        # A run evaluated the check while its own work still counted as failed.
        instance.report_runless_asset_event(raised)
        assert evaluations(tick(small, instance, done.cursor))["freshness"].passed


def test_a_check_that_a_run_skipped_is_reported_again_at_the_next_tick(small: SmallHome) -> None:
    """The UI shows a planned check whose step did not run as skipped."""

    @dg.asset(key=EVENTS)
    def failing() -> None:
        raise dg.Failure("no publication", allow_retries=False)

    checks = health_checks(LAYOUT, small.settings, small.home, lambda: NOW)
    job = dg.Definitions(assets=[failing], asset_checks=[checks])
    with instance_of(small.home) as instance:
        first = tick(small, instance)
        assert tick(small, instance, first.cursor).asset_events == []
        done = job.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, raise_on_error=False, run_config=QUIET
        )
        assert not done.success and not done.get_asset_check_evaluations()
        history = instance.event_log_storage.get_asset_check_execution_history(FRESHNESS, limit=1)
        assert history[0].status.value == "PLANNED"
        again = evaluations(tick(small, instance, first.cursor))
        assert not again["freshness"].passed
        assert again["runs"].passed
        assert tick(small, instance, first.cursor).asset_events == []


def test_the_checks_can_be_run_by_a_person(small: SmallHome) -> None:
    checks = health_checks(LAYOUT, small.settings, small.home, lambda: NOW)
    found = dg.Definitions(asset_checks=[checks]).resolve_implicit_global_asset_job_def()
    result = found.execute_in_process(run_config=QUIET)
    shown = {each.check_name: each for each in result.get_asset_check_evaluations()}
    assert {name for name, each in shown.items() if not each.passed} == {"freshness"}
    assert shown["freshness"].metadata["warnings"].value == 1


def test_a_damaged_cursor_reports_every_check(small: SmallHome) -> None:
    with instance_of(small.home) as instance:
        tick(small, instance)
        assert evaluations(tick(small, instance, "unpublished")).keys() == set(TOPICS)


def test_status_reads_the_note_of_another_instance(small: SmallHome, tmp_path: Path) -> None:
    merge(small.home)
    folder = tmp_path / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(f"storage: {{sqlite: {{base_dir: {tmp_path / 'x'}}}}}")
    small.home = Home(small.home.root, dagster_home=folder)

    def end(job: str, tags: dict[str, str], *, error: str = "") -> None:
        @dg.op
        def step() -> None:
            if error:
                raise OSError(error)

        @dg.job(name=job, tags={"dagster/partition": "2026-03-01", **tags})
        def work() -> None:
            step()

        work.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)

    ours = {OWNER_TAG: "almanac/almanac_almanac"}
    with instance_of(small.home) as instance:
        end("almanac_daily", ours, error="no space")
        end("almanac_daily", {}, error="of other code")
        assert read_health(small.settings, small.home, NOW).runs is None
        shown = evaluations(tick(small, instance))["runs"].metadata["what to do"].value
        assert "of almanac_daily of 2026-03-01 at " in str(shown)
        (warning,) = read_health(small.settings, small.home, NOW).warnings
        assert warning.kind == "failed_runs"
        assert "(OSError: no space): `almanac run` repeats today's" in warning.text
        end("almanac_daily", ours)
        tick(small, instance)
        assert read_health(small.settings, small.home, NOW).warnings == []
        note = read_run_note(small.home)
        assert note is not None and note.at == NOW


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
    note = read_run_note(Home(tmp_path / "home"))
    assert note is not None and note.failed == () and note.daemon_at is None
    assert "Failed runs" in almanac("status", **given).stdout
