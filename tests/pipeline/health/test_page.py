"""The warnings on Dagster's pages, and the failed work of an instance with another storage."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat
from pydantic import SecretStr

from assets.layout import Layout
from pipeline.automation import health
from pipeline.automation.health import health_check, health_sensor
from pipeline.build import build_definitions
from pipeline.health.alerts import Changes, find_warnings, summary_of
from pipeline.health.report import JOBS, health_of
from pipeline.health.stuck import REMEDIES
from pipeline.instance import instance_of
from pipeline.runs.history import ASSET_JOB
from tests.pipeline.composing.test_instance import other_storage
from tests.pipeline.homes.run_records import dies_with, run_of, status_of
from tests.pipeline.homes_in_days import QUIET, address_of, settings_of
from tests.pipeline.small_home import PULLED, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime.now(UTC)
LAYOUT = Layout(key_prefix=("almanac",), name_prefix="almanac_")
KEY = dg.AssetCheckKey(LAYOUT.key("events"), "no_warnings")
SECRET = "canary-key-0f3b29c1"


def tick(
    small: SmallHome, instance: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorResult:
    sensor = health_sensor(LAYOUT, small.settings, small.home, lambda: NOW, {"polls"})
    result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
    assert isinstance(result, dg.SensorResult) and not result.run_requests
    return result


def evaluation(result: dg.SensorResult) -> dg.AssetCheckEvaluation:
    (event,) = result.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    return event


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    small = SmallHome(tmp_path / "home")
    small.land(*PULLED, at=NOW - timedelta(hours=2))
    return small


def test_the_sensor_marks_a_run_as_failed_whose_process_was_killed(small: SmallHome) -> None:
    run_id = run_of(small.home)
    dies_with(small.home, run_id)
    with instance_of(small.home) as instance:
        tick(small, instance)
    assert status_of(small.home, run_id) == "FAILURE"


class TestCheck:
    def test_the_sensor_reports_a_warning_when_it_begins_and_when_it_ends(
        self, small: SmallHome
    ) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            first = tick(small, instance)
            assert first.skip_reason == dg.SkipReason("Warnings: unmerged. Next check in 5 min.")
            raised = evaluation(first)
            assert (raised.asset_check_key, raised.passed) == (KEY, False)
            assert raised.severity is dg.AssetCheckSeverity.WARN
            assert "almanac merge" in str(raised.metadata["what to do"].value)
            # As the daemon does with the events of a tick.
            instance.report_runless_asset_event(raised)
            again = tick(small, instance, first.cursor)
            assert again.asset_events == []
            merge(small.home)
            done = tick(small, instance, again.cursor)
            instance.report_runless_asset_event(evaluation(done))
            history = instance.event_log_storage.get_asset_check_execution_history(KEY, limit=5)
            assert [record.status.value for record in history] == ["SUCCEEDED", "FAILED"]
            assert tick(small, instance, done.cursor).asset_events == []
            # A run evaluated the check while what it repeated still counted as failed.
            instance.report_runless_asset_event(raised)
            assert evaluation(tick(small, instance, done.cursor)).passed

    def test_the_check_can_be_run_by_hand(self, small: SmallHome) -> None:
        check = health_check(LAYOUT, small.settings, small.home, lambda: NOW)
        found = dg.Definitions(asset_checks=[check]).resolve_implicit_global_asset_job_def()
        result = found.execute_in_process(run_config=QUIET)
        (shown,) = result.get_asset_check_evaluations()
        assert (shown.asset_check_key, shown.passed) == (KEY, False)
        assert shown.metadata["warnings"].value == 1


@pytest.fixture
def company(small: SmallHome, tmp_path: Path) -> Iterator[tuple[SmallHome, dg.DagsterInstance]]:
    """A merged home whose records are in a storage that can't be read without Dagster."""
    merge(small.home)
    folder = tmp_path / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(other_storage(folder))
    small.home = Home(small.home.root, dagster_home=folder)
    small.settings = small.settings.model_copy(update={"name_prefix": "almanac_"})
    with instance_of(small.home) as instance:
        yield small, instance


def ended(
    instance: dg.DagsterInstance, job: str, *, error: str = "", part: str = "2026-03-01"
) -> None:
    @dg.op
    def step() -> None:
        if error:
            raise OSError(error)

    @dg.job(name=job, tags={"dagster/partition": part})
    def work() -> None:
        step()

    work.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)


class TestAnotherStorage:
    def test_status_says_what_it_does_not_know_until_the_daemon_has_noted_it(
        self, company: tuple[SmallHome, dg.DagsterInstance]
    ) -> None:
        small, instance = company
        ended(instance, "almanac_daily", error="no space")
        ended(instance, "of_the_company", error="not ours")
        before = health_of(small.settings, small.home, NOW)
        assert "another storage than SQLite, and no daemon has noted" in before.runs.unknown
        assert before.warnings == []
        shown = evaluation(tick(small, instance)).metadata["what to do"].value
        assert "of almanac_daily of 2026-03-01 at " in str(shown)
        (warning,) = health_of(small.settings, small.home, NOW).warnings
        assert warning.kind == "failed_runs"
        assert "(OSError: no space): `almanac run` repeats today's" in warning.text
        ended(instance, "almanac_daily")
        tick(small, instance)
        assert health_of(small.settings, small.home, NOW).warnings == []

    def test_runs_of_others_hide_no_failure_of_ours(
        self, company: tuple[SmallHome, dg.DagsterInstance], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small, instance = company
        monkeypatch.setattr(health, "_RUNS_MAX", 2)
        ended(instance, "almanac_daily", error="no space")
        for _ in range(3):
            ended(instance, "of_the_company")
        tick(small, instance)
        (warning,) = health_of(small.settings, small.home, NOW).warnings
        assert warning.kind == "failed_runs"

    def test_a_daemon_that_no_longer_notes_anything_is_warned_of(
        self, company: tuple[SmallHome, dg.DagsterInstance]
    ) -> None:
        small, instance = company
        instance.add_daemon_heartbeat(DaemonHeartbeat(NOW.timestamp(), "SENSOR", None, []))
        tick(small, instance)
        assert health_of(small.settings, small.home, NOW).warnings == []
        later = NOW + timedelta(minutes=20)
        (warning,) = health_of(small.settings, small.home, later).warnings
        assert warning.kind == "daemon"


def test_the_error_of_a_failed_run_is_posted_without_secrets_and_folders(tmp_path: Path) -> None:
    given = address_of("https://api.example.com", SECRET)
    hook = SecretStr("https://hooks.example.com/canary-hook")
    small = SmallHome(tmp_path / "home", "https://api.example.com", alert_url=hook, **given)
    small.land(*PULLED, at=NOW - timedelta(hours=2))
    merge(small.home)
    error = (
        f"key {SECRET} at {tmp_path}/home/lake/x.parquet, postgresql://me:pass@db:5432/dagster, "
        f"{hook.get_secret_value()}"
    )
    with instance_of(small.home) as instance:
        ended(instance, "merge", error=error)
        ended(instance, "alert", error="the receiver is down")
    found = find_warnings(small.settings, small.home, NOW)
    (warning,) = found.warnings
    text = summary_of(found.source or "", Changes(begun=(warning,)))
    assert "1 run failed" in text
    assert "x.parquet" in text and "//…@db:5432/dagster" in text
    for secret in (SECRET, str(tmp_path), "pass@", "canary-hook"):
        assert secret not in text
    status = health_of(small.settings, small.home, NOW).warnings
    assert "2 runs failed" in status[0].text


def test_failed_runs_of_every_job_are_reported_with_what_to_do(tmp_path: Path) -> None:
    hooks = {name: SecretStr("https://example.com/hook") for name in ("alert_url", "digest_url")}
    definitions = build_definitions(settings_of(tmp_path / "home", **hooks))
    repository = definitions.get_repository_def()
    jobs = {job.name for job in repository.get_all_jobs()} - {ASSET_JOB}
    assert jobs <= set(JOBS)
    assert set(JOBS) == REMEDIES.keys()
