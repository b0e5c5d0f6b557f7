"""Warnings of stuck work: each is raised by the situation itself, and ends with it."""

import re
import resource
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import dagster as dg
import duckdb
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    TickData,
    TickStatus,
)
from dagster._daemon.types import DaemonHeartbeat
from dagster_shared.error import SerializableErrorInfo
from pydantic import SecretStr

from pipeline.build import build_definitions
from pipeline.health.alerts import Reported, changes, find_warnings, post_changes, posted_after
from pipeline.health.records import Warned
from pipeline.health.report import health_of
from pipeline.instance import instance_of
from pipeline.runs.dead_runs import fail_dead_runs
from pipeline.runs.place import LOCATION
from pipeline.runs.store import RUNS, SQL, opened
from resources.backfill.state import BackfillState, BackfillStates
from tests.pipeline.health.receiving import receiving
from tests.pipeline.homes.run_records import dies_with, exit_code, forked, run_of
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import DAY, SmallHome
from warehouse.errors import DamagedBatch
from warehouse.files.documents import put_note
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Scope
from warehouse.news import FILE as QUIET_FILE
from warehouse.news import QuietBatches

ROOT = Path(__file__).parents[3]
HOUR = timedelta(hours=1)
LANDED = datetime.now(UTC).replace(hour=9) - 3 * DAY
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

STUCK = frozenset(
    [
        "unmerged",
        "unpublished",
        "failed_runs",
        "runs",
        "ticks",
        "long_runs",
        "backfills",
        "daemon",
    ]
)


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


def stuck(small: SmallHome, now: datetime | None = None) -> dict[str, Warned]:
    found = health_of(small.settings, small.home, now or datetime.now(UTC)).warnings
    return {warning.kind: warning for warning in found if warning.kind in STUCK}


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
        assert "unmerged" not in stuck(small, late.landed_at + HOUR)
        found = stuck(small, late.landed_at + HOUR + timedelta(minutes=1))
        assert found.keys() == {"unmerged"}
        assert found["unmerged"].since == late.landed_at
        assert found["unmerged"].text == (
            f"1 landed batch waits to be merged since {late.landed_at:%Y-%m-%d %H:%M} UTC: "
            "almanac merge merges them or shows why not"
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
        assert stuck(small, datetime.now(UTC) + 2 * HOUR).keys() == {"unmerged"}
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

        def merge_without_room() -> None:
            # As on a full disk: the small files of the lake fit, the published file does not.
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            merge(small.home)

        assert exit_code(forked(merge_without_room)) == 1
        now = datetime.now(UTC)
        found = stuck(small, now)
        assert found.keys() == {"unpublished"}
        assert found["unpublished"].since is not None
        day = batch.observed_at.date()
        assert found["unpublished"].text.startswith(
            f"The published file lacks 1 day of the lake ({day}; 0 versions) since "
        )
        merge(small.home)
        assert stuck(small, now) == {}

    def test_a_published_file_that_is_damaged_or_missing_is_warned_of(
        self, small: SmallHome
    ) -> None:
        small.home.warehouse.unlink()
        text = stuck(small)["unpublished"].text
        assert f"lacks 2 days of the lake ({LANDED:%Y-%m-%d} to " in text
        small.home.warehouse.write_bytes(b"no database")
        text = stuck(small)["unpublished"].text
        assert text.startswith("The published file can't be read (")
        assert str(small.home.root) not in text
        merge(small.home)
        assert stuck(small) == {}

    def test_a_merge_that_is_about_to_publish_is_not_warned_of(self, small: SmallHome) -> None:
        small.land("events", at=LANDED + 2 * DAY)
        merge(small.home, publishing=False)
        assert stuck(small).keys() == {"unpublished"}
        with small.home.merge_lock():
            assert stuck(small) == {}


def merge_run(small: SmallHome) -> dg.ExecuteInProcessResult:
    job = build_definitions(small.settings).resolve_job_def("merge")
    with instance_of(small.home) as instance:
        return job.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET)


class TestQuietBatches:
    def test_batches_without_news_count_after_26_hours(self, small: SmallHome) -> None:
        landed = datetime.now(UTC)
        (quiet,) = small.land("events", at=landed)
        put_note(small.home.state_storage, QUIET_FILE, QuietBatches(batches=(quiet.batch_id,)))
        assert stuck(small, landed + 26 * HOUR) == {}
        later = landed + 26 * HOUR + timedelta(minutes=1)
        assert stuck(small, later).keys() == {"unmerged"}


class TestFailedRuns:
    def test_a_run_that_fails_is_reported_with_its_error_until_the_same_job_succeeds(
        self, small: SmallHome
    ) -> None:
        small.home.warehouse.unlink()
        small.home.warehouse.mkdir()
        small.land("events", at=LANDED + 2 * DAY)
        first, second = merge_run(small), merge_run(small)
        assert not first.success and not second.success
        text = stuck(small)["failed_runs"].text
        assert text.startswith(
            f"1 run failed and was not followed by a success: run {second.run_id[:8]} of merge at "
        )
        assert " for the 2. time since " in text
        assert "is a folder, and must be the published file" in text
        assert text.endswith(
            ": `almanac merge` merges and publishes, or shows why not. The page of the run in "
            "almanac ui has the whole error"
        )
        small.home.warehouse.rmdir()
        assert merge_run(small).success
        assert "failed_runs" not in stuck(small)

    def test_a_merge_by_hand_ends_the_warning_of_a_failed_one(self, small: SmallHome) -> None:
        small.home.warehouse.unlink()
        small.home.warehouse.mkdir()
        assert not merge_run(small).success
        small.home.warehouse.rmdir()
        assert "failed_runs" in stuck(small)
        merge(small.home)
        assert stuck(small) == {}

    def test_a_killed_run_is_first_dead_then_failed_and_its_repetition_ends_that(
        self, small: SmallHome
    ) -> None:
        run_id = run_of(small.home, part="2026-03-01")
        dies_with(small.home, run_id)
        assert stuck(small).keys() == {"runs"}
        with instance_of(small.home) as instance:
            fail_dead_runs(small.home, instance)
        found = stuck(small)
        assert found.keys() == {"failed_runs"}
        assert "of daily of 2026-03-01 at " in found["failed_runs"].text
        assert "(Its process no longer exists: it was killed" in found["failed_runs"].text
        ended(small, "daily", "2026-03-02")
        assert stuck(small).keys() == {"failed_runs"}
        ended(small, "daily", "2026-03-01")
        assert stuck(small) == {}

    def test_runs_of_other_jobs_and_of_long_ago_are_left_out(self, small: SmallHome) -> None:
        ended(small, "of_the_company", "", failed=True)
        assert stuck(small) == {}
        ended(small, "calendar", "2026-01-01", failed=True)
        assert stuck(small, datetime.now(UTC) + 6 * DAY)["failed_runs"]
        assert "failed_runs" not in stuck(small, datetime.now(UTC) + 8 * DAY)

    def test_each_failure_is_posted_once_and_their_end_too(self, small: SmallHome) -> None:
        posted: dict[str, Reported] = {}
        posts: list[tuple[str, ...]] = []

        def look() -> None:
            now = datetime.now(UTC)
            found = changes(posted, list(stuck(small).values()), now=now)
            posts.append(found.kinds)
            posted.update(posted_after(posted, found, now=now))
            for kind in found.over:
                del posted[kind]

        ended(small, "daily", "2026-03-01", failed=True)
        look()
        look()
        ended(small, "calendar", "2026-01-01", failed=True)
        look()
        ended(small, "daily", "2026-03-01")
        look()
        ended(small, "daily", "2026-03-01", failed=True)
        look()
        ended(small, "daily", "2026-03-01")
        ended(small, "calendar", "2026-01-01")
        look()
        assert posts == [
            *[("+failed_runs",), (), ("+failed_runs",), (), ("+failed_runs",), ("-failed_runs",)]
        ]


def test_a_first_run_that_fails_is_reported_before_there_is_a_home(tmp_path: Path) -> None:
    home, settings = Home(tmp_path), settings_of(tmp_path)
    assert health_of(settings, home, datetime.now(UTC)).warnings == []
    with instance_of(home) as instance:
        run = dg.DagsterRun(job_name="daily", status=dg.DagsterRunStatus.FAILURE)
        instance.run_storage.add_run(run)
    health = health_of(settings, home, datetime.now(UTC))
    assert health.source is None
    assert [warning.kind for warning in health.warnings] == ["failed_runs"]
    found = find_warnings(settings, home, datetime.now(UTC))
    assert (found.source, len(found.warnings)) == ("sandbox:1", 1)


_ENDED = count()


def ended(small: SmallHome, job: str, part: str, *, failed: bool = False) -> None:
    """Add a run that ended to the records."""
    tags = {"dagster/partition": part} if part else {}
    with instance_of(small.home) as instance:
        status = dg.DagsterRunStatus.FAILURE if failed else dg.DagsterRunStatus.SUCCESS
        run = dg.DagsterRun(job_name=job, status=status, tags=tags)
        instance.run_storage.add_run(run)
    # A second apart: Dagster notes the second of an update, and that tells two failures apart.
    ended_at = datetime.now(UTC) - timedelta(hours=1) + timedelta(seconds=next(_ENDED))
    with sqlite3.connect(small.home.dagster / RUNS) as records:
        records.execute(
            "UPDATE runs SET update_timestamp = ? WHERE run_id = ?",
            (f"{ended_at:%Y-%m-%d %H:%M:%S.%f}", run.run_id),
        )


class TestDaemon:
    def test_ticks_that_fail_are_reported_until_one_does_not(self, small: SmallHome) -> None:
        with instance_of(small.home) as instance:
            ticked(instance, TickStatus.SKIPPED, minutes_ago=9)
            ticked(instance, TickStatus.FAILURE, minutes_ago=6)
            ticked(instance, TickStatus.FAILURE, minutes_ago=3)
        text = stuck(small)["ticks"].text
        assert text.startswith("The last 2 ticks of `polls` failed, since ")
        assert "(OSError: No space left on device)" in text
        with instance_of(small.home) as instance:
            ticked(instance, TickStatus.SUCCESS, minutes_ago=0)
        assert stuck(small) == {}

    def test_a_daemon_that_does_not_report_is_warned_of_until_it_does(
        self, small: SmallHome
    ) -> None:
        reported(small, minutes_ago=20)
        assert "daemon last reported at" in stuck(small)["daemon"].text
        reported(small, minutes_ago=0)
        assert stuck(small) == {}
        reported(small, "SENSOR", minutes_ago=40)
        assert "The sensor part of Dagster's daemon" in stuck(small)["daemon"].text

    def test_a_backfill_in_which_nothing_happens_is_reported_until_it_ends(
        self, small: SmallHome
    ) -> None:
        with instance_of(small.home) as instance:
            backfill = PartitionBackfill(
                backfill_id="abcdefgh",
                status=BulkActionStatus.REQUESTED,
                from_failure=False,
                tags={},
                backfill_timestamp=(datetime.now(UTC) - 2 * HOUR).timestamp(),
                partition_set_origin=None,
            )
            instance.add_backfill(backfill)
            assert "Backfill abcdefgh of " in stuck(small)["backfills"].text
            instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
        assert stuck(small) == {}


def ticked(instance: dg.DagsterInstance, status: TickStatus, *, minutes_ago: float) -> None:
    """Record a tick of the sensor `polls`."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(LOCATION), "__repository__")
    state = InstigatorState(
        RemoteInstigatorOrigin(repository, "polls"),
        InstigatorType.SENSOR,
        InstigatorStatus.DECLARED_IN_CODE,
    )
    if not instance.all_instigator_state():
        instance.add_instigator_state(state)
    error = SerializableErrorInfo("OSError: No space left on device\n", [], "OSError", None, None)
    instance.create_tick(
        TickData(
            instigator_origin_id=state.instigator_origin_id,
            instigator_name="polls",
            instigator_type=InstigatorType.SENSOR,
            status=status,
            timestamp=(datetime.now(UTC) - timedelta(minutes=minutes_ago)).timestamp(),
            selector_id=state.selector_id,
            run_ids=[],
            run_keys=[],
            error=error if status is TickStatus.FAILURE else None,
        )
    )


def reported(small: SmallHome, daemon: str = "SCHEDULER", *, minutes_ago: float) -> None:
    at = (datetime.now(UTC) - timedelta(minutes=minutes_ago)).timestamp()
    with instance_of(small.home) as instance:
        instance.add_daemon_heartbeat(DaemonHeartbeat(at, daemon, None, []))


def test_each_kind_of_warning_has_a_row_that_says_what_to_do() -> None:
    modules = (ROOT / "pipeline/health").glob("*.py")
    found = "\n".join(path.read_text() for path in modules)
    kinds = set(re.findall(r'Warned\(\s*f?"([a-z_]+)', found)) | {"partial", "flagged"}
    page = (ROOT / "docs/warnings.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `")]
    assert all(len(row) == 4 and all(row) for row in rows)
    documented = {kind for row in rows for kind in re.findall("`([a-z_]+)", row[0])}
    assert documented == kinds


class TestUnfinished:
    def test_a_run_that_does_not_end_is_reported_until_it_does(self, small: SmallHome) -> None:
        run_id = run_of(small.home, job="merge")
        later = datetime.now(UTC) + 4 * HOUR
        assert "long_runs" not in stuck(small)
        text = stuck(small, later)["long_runs"].text
        assert text.startswith(f"Run {run_id[:8]} of merge, created at ")
        assert "has not ended (started)" in text
        with instance_of(small.home) as instance:
            run = instance.get_run_by_id(run_id)
            assert run is not None
            instance.report_run_canceled(run)
        assert "long_runs" not in stuck(small, later)

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
        text = stuck(small, later)["backfills"].text
        assert f"{begun - 60 * DAY:%Y-%m-%d} to {begun:%Y-%m-%d} was interrupted" in text
        with states.locked():
            assert stuck(small, later) == {}
        states.end(state)
        assert stuck(small, later) == {}


class TestPosts:
    def test_a_failed_run_is_posted_with_its_job_id_error_and_remedy_and_its_end(
        self, small: SmallHome
    ) -> None:
        with receiving() as receiver:
            given = {"alert_url": SecretStr(receiver.url)}
            posting = SmallHome(small.home.root, **given)
            small.home.warehouse.unlink()
            small.home.warehouse.mkdir()
            failed = merge_run(small)
            now = datetime.now(UTC)
            post_changes(posting.settings, small.home, now)
            assert not post_changes(posting.settings, small.home, now)
            small.home.warehouse.rmdir()
            assert merge_run(small).success
            post_changes(posting.settings, small.home, datetime.now(UTC))
        first, last = receiver.bodies
        (posted,) = [each for each in first["warnings"] if each["kind"] == "failed_runs"]
        for part in (
            f"run {failed.run_id[:8]} of merge at ",
            "is a folder, and must be the published file",
            "`almanac merge` merges and publishes, or shows why not",
        ):
            assert part in posted["text"] and part in first["text"]
        assert posted["since"] is not None
        assert str(small.home.root) not in first["text"]
        assert set(last["resolved"]) == {"failed_runs", "unpublished"}


@pytest.mark.parametrize("name", ["list_failed_runs", "list_successes_after", "list_long_runs"])
def test_the_tags_of_a_run_are_found_by_the_run(small: SmallHome, name: str) -> None:
    # By their key they would be those of all runs, for each run: most of a second after a year.
    values = {"since": "", "number": 0, "before": ""}
    with opened(small.home.dagster / RUNS) as store:
        plan = store.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values).fetchall()
    tags = [step for *_, step in plan if "idx_run_tags" in step]
    assert tags and all("idx_run_tags_run_idx (run_id=?)" in step for step in tags)
