"""Warnings of work that does not advance: unpublished data, failed runs, a silent daemon."""

import os
import re
import resource
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pytest
from pydantic import SecretStr

from pipeline.automation.dead_runs import fail_dead_runs
from pipeline.build import build_definitions
from pipeline.health.checks import _REMEDIES, CHECKS, find_check, find_warnings, read_health
from pipeline.health.facts import HealthWarning
from pipeline.health.notices import post_warnings
from pipeline.health.runs import _find_failed_ticks, read_run_note, write_run_note
from pipeline.instance import OWNER_TAG, instance_of
from resources.backfill.state import BackfillState, BackfillStates
from tests.pipeline.health.receiving import receiving
from tests.pipeline.homes_in_days import address_of, settings_of
from tests.pipeline.run_records import exit_code, forked, report_daemon, start_dead_run
from tests.pipeline.small_home import DAY, SmallHome
from warehouse.errors import DamagedBatch
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.landing.batches import Scope

ROOT = Path(__file__).parents[3]
HOUR = timedelta(hours=1)
LANDED = datetime.now(UTC).replace(hour=9) - 3 * DAY
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
STUCK = ("unpublished", "deferred", "failed_runs", "daemon")
SECRET = "canary-key-0f3b29c1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two merged days, published two hours ago, and records of no run."""
    small = SmallHome(tmp_path_factory.mktemp("stuck") / "home")
    small.land(at=LANDED)
    small.land(at=LANDED + DAY, body=b'{"data": [ ]}')
    merge(small.home)
    small.home.warehouse.chmod(0o600)
    with duckdb.connect(small.home.warehouse) as published:
        at = (datetime.now(UTC) - 2 * HOUR).isoformat()
        published.execute("UPDATE _almanac.facts SET value = $1 WHERE name = 'published_at'", [at])
    with instance_of(small.home):
        pass
    return small.home.root


@pytest.fixture
def small(made: Path, tmp_path: Path) -> SmallHome:
    shutil.copytree(made, tmp_path / "home")
    return SmallHome(tmp_path / "home")


def stuck(small: SmallHome, now: datetime | None = None) -> dict[str, HealthWarning]:
    found = read_health(small.settings, small.home, now or datetime.now(UTC)).warnings
    return {warning.kind: warning for warning in found if warning.kind in STUCK}


def note(small: SmallHome) -> None:
    """Write the note of runs, as the sensor does."""
    with instance_of(small.home) as instance:
        write_run_note(small.home, small.settings, instance, datetime.now(UTC), {"polls"})


def noted(small: SmallHome, now: datetime | None = None) -> dict[str, HealthWarning]:
    note(small)
    return stuck(small, now)


class TestUnmerged:
    def test_a_merge_that_fails_leaves_a_warning_until_the_damaged_file_is_back(
        self, small: SmallHome
    ) -> None:
        damaged = small.home.landing.manifest(small.home.landing.batch_ids(day=LANDED.date())[0])
        path = small.home.landing.storage.path(f"batches/{LANDED.date()}/{damaged.batch_id}.json")
        whole = path.read_bytes()
        path.write_bytes(b"{")
        # It sorts before what is merged, so the first day must be folded again, and can't be.
        (late,) = small.land("coins", at=LANDED + timedelta(minutes=1), body=b'{"data":  []}')
        with pytest.raises(DamagedBatch):
            merge(small.home)
        assert "unpublished" not in stuck(small, late.landed_at + HOUR)
        found = stuck(small, late.landed_at + HOUR + timedelta(minutes=1))
        assert found.keys() == {"unpublished"}
        assert found["unpublished"].since == late.landed_at
        assert found["unpublished"].text == (
            f"1 landed batch waits to be merged since {late.landed_at:%Y-%m-%d %H:%M} UTC: "
            "almanac merge merges them, or shows the reason"
        )
        path.write_bytes(whole)
        merge(small.home)
        assert stuck(small) == {}

    def test_a_batch_that_is_released_waits_from_then_on(self, small: SmallHome) -> None:
        (bad,) = small.land("coins", at=LANDED + 2 * DAY, body=b"<html></html>")
        merge(small.home)
        assert stuck(small) == {}
        small.home.landing.release(bad.batch_id)
        assert stuck(small) == {}
        assert stuck(small, datetime.now(UTC) + 2 * HOUR).keys() == {"unpublished"}
        merge(small.home)
        assert stuck(small, datetime.now(UTC) + 2 * HOUR) == {}

    def test_a_marker_that_a_killed_merge_left_is_no_waiting_batch(self, small: SmallHome) -> None:
        (batch, *_) = small.home.landing.batch_ids()
        small.home.landing.storage.put(f"pending/{batch}.json", b"{}")
        assert stuck(small) == {}


class TestUnpublished:
    def test_a_publication_that_cannot_write_leaves_a_warning_until_one_can(
        self, small: SmallHome
    ) -> None:
        (batch,) = small.land("events", at=LANDED + 2 * DAY)
        before = small.home.warehouse.read_bytes()

        def merge_without_room() -> None:
            # As on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            merge(small.home)

        assert exit_code(forked(merge_without_room)) == 1
        assert small.home.warehouse.read_bytes() == before
        now = datetime.now(UTC)
        found = stuck(small, now)
        assert found.keys() == {"unpublished"}
        assert found["unpublished"].since == batch.landed_at
        assert found["unpublished"].text.startswith("1 landed batch waits to be merged since ")
        merge(small.home)
        assert stuck(small, now) == {}

    def test_a_missing_published_file_is_warned_of(self, small: SmallHome) -> None:
        small.home.warehouse.unlink()
        text, landed = stuck(small)["unpublished"].text, len(small.home.landing.batch_ids())
        assert text.startswith(f"{landed} landed batches wait to be merged since {LANDED:%Y-%m-%d}")
        merge(small.home)
        assert stuck(small) == {}

    def test_a_published_file_of_an_earlier_day_is_warned_of(self, small: SmallHome) -> None:
        earlier = small.home.root / "earlier"
        shutil.copy(small.home.warehouse, earlier)
        (batch,) = small.land("events", at=LANDED + 2 * DAY)
        merge(small.home)
        assert stuck(small) == {}
        earlier.replace(small.home.warehouse)
        assert stuck(small)["unpublished"].since == batch.landed_at
        merge(small.home)
        assert stuck(small) == {}

    def test_a_damaged_published_file_is_warned_of_until_it_is_rebuilt(
        self, small: SmallHome
    ) -> None:
        small.home.warehouse.unlink()
        small.home.warehouse.write_bytes(b"no database")
        text = stuck(small)["unpublished"].text
        assert text.startswith("The published file can't be read (")
        assert "almanac replay" in text
        assert str(small.home.root) not in text
        replay(small.home)
        assert stuck(small) == {}

    def test_the_warning_names_the_process_that_merges(self, small: SmallHome) -> None:
        small.land("events", at=LANDED + 2 * DAY)
        with small.home.merge_lock():
            assert f"(pid {os.getpid()}, " in stuck(small)["unpublished"].text

    def test_a_backfill_that_was_interrupted_is_reported_until_it_is_continued(
        self, small: SmallHome
    ) -> None:
        states = BackfillStates(small.home.state_storage, small.home.landing)
        begun = datetime.now(UTC)
        scope = Scope(lower=begun - 60 * DAY, upper=begun)
        state = BackfillState(scope=scope, plan="elite", source="sandbox:1", started_at=begun)
        states.put(state)
        later = begun + 2 * HOUR
        assert stuck(small, begun) == {}
        text = stuck(small, later)["deferred"].text
        assert f"{begun - 60 * DAY:%Y-%m-%d} to {begun:%Y-%m-%d}: was interrupted" in text
        with states.locked():
            assert stuck(small, later) == {}
        states.end(state)
        assert stuck(small, later) == {}


def merge_run(small: SmallHome) -> dg.ExecuteInProcessResult:
    job = build_definitions(small.settings).resolve_job_def("merge")
    with instance_of(small.home) as instance:
        return job.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)


_ENDED = count()


def ended(small: SmallHome, job: str, part: str, *, failed: bool = False, **tags: str) -> str:
    """Add a run that ended to the records."""
    given = {OWNER_TAG: "almanac", **({"dagster/partition": part} if part else {}), **tags}
    status = dg.DagsterRunStatus.FAILURE if failed else dg.DagsterRunStatus.SUCCESS
    with instance_of(small.home) as instance:
        run = dg.DagsterRun(job_name=job, status=status, tags=given)
        instance.run_storage.add_run(run)
    # A second apart: Dagster notes the second of an update, and that tells two failures apart.
    ended_at = datetime.now(UTC) - timedelta(hours=1) + timedelta(seconds=next(_ENDED))
    with sqlite3.connect(small.home.dagster / "history/runs.db") as records:
        records.execute(
            "UPDATE runs SET update_timestamp = ? WHERE run_id = ?",
            (f"{ended_at:%Y-%m-%d %H:%M:%S.%f}", run.run_id),
        )
    return run.run_id


class TestFailedRuns:
    def test_a_failed_run_is_reported_with_its_error_until_the_same_job_succeeds(
        self, small: SmallHome
    ) -> None:
        assert noted(small) == {}
        small.home.warehouse.unlink()
        small.home.warehouse.mkdir()
        small.land("events", at=LANDED + 2 * DAY)
        first, second = merge_run(small), merge_run(small)
        assert not first.success and not second.success
        text = noted(small)["failed_runs"].text
        assert text.startswith(
            f"1 run failed and was not followed by a success: run {second.run_id[:8]} of merge at "
        )
        assert ", 2 times since " in text
        assert "is a folder, and must be the published file" in text
        assert text.endswith(
            ": `almanac merge` merges and publishes, or shows the reason. The page of the run in "
            "almanac ui has the whole error"
        )
        small.home.warehouse.rmdir()
        assert merge_run(small).success
        assert "failed_runs" not in noted(small)

    def test_a_merge_by_command_ends_the_warning_of_a_failed_one(self, small: SmallHome) -> None:
        small.home.warehouse.unlink()
        small.home.warehouse.mkdir()
        assert not merge_run(small).success
        small.home.warehouse.rmdir()
        assert "failed_runs" in noted(small)
        merge(small.home)
        assert stuck(small) == {}

    def test_a_killed_run_is_failed_until_the_same_partition_succeeds(
        self, small: SmallHome
    ) -> None:
        start_dead_run(small.home, part="2026-03-01")
        with instance_of(small.home) as instance:
            fail_dead_runs(instance)
        found = noted(small)
        assert found.keys() == {"failed_runs"}
        assert "of daily of 2026-03-01 at " in found["failed_runs"].text
        assert "(Its process no longer exists: it was killed" in found["failed_runs"].text
        ended(small, "daily", "2026-03-02")
        assert noted(small).keys() == {"failed_runs"}
        ended(small, "daily", "2026-03-01")
        assert noted(small) == {}

    def test_runs_of_other_code_and_of_long_ago_are_left_out(self, small: SmallHome) -> None:
        ended(small, "daily", "", failed=True, **{OWNER_TAG: "another_home"})
        assert noted(small) == {}
        ended(small, "calendar", "2026-01-01", failed=True)
        assert noted(small, datetime.now(UTC) + 6 * DAY)["failed_runs"]
        assert "failed_runs" not in stuck(small, datetime.now(UTC) + 8 * DAY)

    def test_a_first_run_that_fails_is_reported_before_there_is_a_home(
        self, tmp_path: Path
    ) -> None:
        small = SmallHome.__new__(SmallHome)
        small.home, small.settings = Home(tmp_path), settings_of(tmp_path)
        assert read_health(small.settings, small.home, datetime.now(UTC)).warnings == []
        ended(small, "daily", "", failed=True)
        note(small)
        health = read_health(small.settings, small.home, datetime.now(UTC))
        assert health.source is None
        assert [warning.kind for warning in health.warnings] == ["failed_runs"]
        found = find_warnings(small.settings, small.home, datetime.now(UTC))
        assert (found.source, len(found.warnings)) == ("sandbox:1", 1)

    def test_each_job_has_advice_for_a_failed_run(self, tmp_path: Path) -> None:
        hooks = {name: SecretStr("https://example.com/") for name in ("alert_url", "digest_url")}
        options = {**hooks, "report_dir": tmp_path / "reports"}
        definitions = build_definitions(settings_of(tmp_path / "home", **options))
        jobs = {job.name for job in definitions.get_repository_def().get_all_jobs()}
        assert jobs - {"__ASSET_JOB"} == _REMEDIES.keys()

    def test_the_note_has_no_secrets_and_folders(self, tmp_path: Path) -> None:
        given = address_of("https://api.example.com", SECRET)
        hook = SecretStr("https://hooks.example.com/canary-hook")
        small = SmallHome(tmp_path / "home", "https://api.example.com", alert_url=hook, **given)
        error = (
            f"key {SECRET} at {tmp_path}/home/parquet/x.parquet, postgresql://me:pass@db:5432/dagster,"
            f" {hook.get_secret_value()}"
        )

        @dg.op
        def step() -> None:
            raise OSError(error)

        @dg.job(name="merge", tags={OWNER_TAG: "almanac"})
        def failing() -> None:
            step()

        with instance_of(small.home) as instance:
            failing.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)
        text = noted(small)["failed_runs"].text
        assert "x.parquet" in text and "//…@db:5432/dagster" in text
        noted_text = (small.home.state / "runs.json").read_text()
        for secret in (SECRET, str(tmp_path), "pass@", "canary-hook"):
            assert secret not in text + noted_text

    def test_a_failed_run_is_posted_with_its_id_error_and_advice_and_its_end(
        self, small: SmallHome
    ) -> None:
        with receiving() as receiver:
            posting = SmallHome(small.home.root, alert_url=SecretStr(receiver.url))
            small.home.warehouse.unlink()
            small.home.warehouse.mkdir()
            failed = merge_run(small)
            note(small)
            now = datetime.now(UTC)
            post_warnings(posting.settings, small.home, now)
            assert not post_warnings(posting.settings, small.home, now)
            small.home.warehouse.rmdir()
            assert merge_run(small).success
            note(small)
            post_warnings(posting.settings, small.home, datetime.now(UTC))
        first, last = receiver.bodies
        (posted,) = [each for each in first["warnings"] if each["kind"] == "failed_runs"]
        for part in (
            f"run {failed.run_id[:8]} of merge at ",
            "is a folder, and must be the published file",
            "`almanac merge` merges and publishes, or shows the reason",
        ):
            assert part in posted["text"] and part in first["text"]
        assert posted["since"] is not None
        assert str(small.home.root) not in first["text"]
        assert set(last["resolved"]) == {"failed_runs", "unpublished"}


class TestDaemon:
    def test_ticks_that_fail_are_reported_until_one_does_not(self) -> None:
        failed = [tick(10, "FAILURE"), tick(7, "FAILURE"), tick(4, "SKIPPED")]
        (found,) = _find_failed_ticks(records_of("polls", failed), {"polls"})
        assert (found.name, found.times, found.since.timestamp()) == ("polls", 2, 7)
        assert found.error == "OSError: No space left on device"
        assert not list(_find_failed_ticks(records_of("polls", failed), {"health"}))
        good = [tick(13, "SUCCESS"), *failed]
        assert not list(_find_failed_ticks(records_of("polls", good), {"polls"}))

    def test_a_daemon_that_does_not_report_is_warned_of_for_a_week(self, small: SmallHome) -> None:
        note(small)
        assert stuck(small, datetime.now(UTC) + HOUR) == {}, "no daemon was ever started"
        reported(small, minutes_ago=20)
        assert "daemon last reported at" in noted(small)["daemon"].text
        reported(small, minutes_ago=0)
        assert noted(small) == {}
        assert "daemon" in stuck(small, datetime.now(UTC) + HOUR), "nobody wrote a note since"
        assert "daemon" not in stuck(small, datetime.now(UTC) + 8 * DAY)

    def test_a_damaged_note_counts_as_none(self, small: SmallHome) -> None:
        reported(small, minutes_ago=20)
        note(small)
        (small.home.state / "runs.json").write_text("{")
        assert stuck(small) == {}
        assert read_run_note(small.home) is None


def tick(at: float, status: str) -> SimpleNamespace:
    """Return a tick as Dagster's records have it."""
    error = SimpleNamespace(message="OSError: No space left on device\n", cause=None)
    return SimpleNamespace(timestamp=at, status=SimpleNamespace(value=status), error=error)


def records_of(sensor: str, ticks: list[SimpleNamespace]) -> Any:
    """Return the part of an instance that knows ticks; only a daemon makes real ones."""
    state = SimpleNamespace(
        instigator_name=sensor,
        status=SimpleNamespace(value="RUNNING"),
        instigator_origin_id="",
        selector_id="",
    )
    return SimpleNamespace(
        all_instigator_state=lambda: [state], get_ticks=lambda *ids, limit: ticks[:limit]
    )


def reported(small: SmallHome, *, minutes_ago: float) -> None:
    """Record a heartbeat as Dagster's daemon does."""
    report_daemon(small.home, datetime.now(UTC) - timedelta(minutes=minutes_ago))


def test_each_kind_of_warning_has_a_row_that_says_what_to_do() -> None:
    page = (ROOT / "docs/warnings.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `")]
    assert all(len(row) == 4 and all(row) for row in rows)
    documented = {kind for row in rows for kind in re.findall("`([a-z_]+)", row[0])}
    assert documented == {check.kind for check in CHECKS}
    assert all(find_check(kind).kind == kind for kind in documented)
