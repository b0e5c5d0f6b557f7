"""Dagster's records of runs: concurrent creation, damage, dead runs and waits for locks."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage import tags
from sqlalchemy import Engine, create_engine, event, text

from assets.layout import Layout
from pipeline import instance as instance_module
from pipeline.daily_run import RunSummary, run_day
from pipeline.health.doctor import check_runs
from pipeline.instance import instance_of, make_stores
from pipeline.runs import place
from pipeline.runs import store as run_store
from pipeline.runs.dead_runs import (
    ANNOUNCED_WITHIN,
    DeadRun,
    announce,
    fail_dead_runs,
    find_dead_runs,
)
from pipeline.runs.store import INDEX, RUNS, STORES, check, damages
from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.pipeline import empty_stores
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes.run_records import (
    copied,
    dies_with,
    exit_code,
    forked,
    killed_after,
    run_of,
    status_of,
)
from tests.pipeline.retention.history import run
from tests.test_cli import ALMANAC, environment
from warehouse.clock import utc_now
from warehouse.errors import RunRecordsBusy, RunRecordsDamaged, RunRecordsInaccessible
from warehouse.files.locks import holder
from warehouse.home import Home

AT_ONCE = 4
ROUNDS = 2
KILLS = 6
MAKING_S = 0.5
CHECK_EVERY_S = 5.0
LONG = pytest.mark.long


def test_databases_stay_open_during_a_block_and_are_whole_after_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    with instance_of(home, keeps_open=True) as instance:
        instance.get_runs_count()
        instance.get_dynamic_partitions("days")
        journals = {path.name for path in home.dagster.rglob("*-wal")}
        assert journals >= {"runs.db-wal", "index.db-wal"}
    assert list(home.dagster.rglob("*-wal")) == []
    assert damages(home, thorough=True) == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the open files")
def test_the_database_of_one_run_stays_open_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    with instance_of(home, keeps_open=True) as instance:
        for _ in range(3):
            run_id = run(instance, "publish")
        files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        open_databases = {file.name for file in files if file.suffix == ".db"}
    shared = {"runs.db", "index.db", "schedules.db"}
    assert open_databases - shared == {f"{run_id}.db"}


def test_the_statements_of_a_second_run_are_not_compiled_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    compiled: list[object] = []

    def note(*given: Any) -> None:
        statement, context = given[2], given[4]
        if statement.startswith("INSERT INTO event_logs"):
            compiled.append(context.compiled)

    with instance_of(home, keeps_open=True) as instance:
        run(instance, "publish")
        event.listen(Engine, "before_cursor_execute", note)
        try:
            run(instance, "publish")
            first = [*compiled]
            compiled.clear()
            run(instance, "publish")
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    assert compiled
    assert {*map(id, compiled)} <= {*map(id, first)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stamped home with records of no run."""
    home = Home(tmp_path_factory.mktemp("records") / "home")
    home.claim("sandbox:1")
    with instance_of(home):
        pass
    return home.root


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Home:
    return copied(made, tmp_path / "data")


def opened(home: Home) -> None:
    with instance_of(home) as instance:
        instance.get_runs_count()
        instance.all_instigator_state()


def begun(work: Callable[[], object]) -> int:
    """Run a function in a forked process that makes Dagster's databases, as a program does."""

    def begin() -> None:
        instance_module._make_in = empty_stores.make
        work()

    return forked(begin)


class TestMaking:
    @pytest.mark.parametrize("round_", range(ROUNDS))
    def test_concurrent_processes_make_the_databases_once(
        self, tmp_path: Path, round_: int
    ) -> None:
        home = Home(tmp_path / "home")
        together = get_context("fork").Barrier(AT_ONCE)

        def work() -> None:
            together.wait(HANGS_AFTER_S)
            opened(home)

        children = [begun(work) for _ in range(AT_ONCE)]
        assert [exit_code(child) for child in children] == [0] * AT_ONCE
        assert damages(home, thorough=True) == []
        for name in STORES:
            with sqlite3.connect(home.dagster / name) as store:
                assert store.execute("SELECT count(*) FROM alembic_version").fetchall() == [(1,)]

    def test_a_process_that_is_killed_in_the_middle_leaves_nothing_in_the_way(
        self, tmp_path: Path
    ) -> None:
        chance = random.Random(5)
        for number in range(KILLS):
            home = Home(tmp_path / f"home{number}")
            killed_after(begun(lambda home=home: make_stores(home)), chance.uniform(0, MAKING_S))  # type: ignore[misc]
            make_stores(home)
            check(home)
            opened(home)

    @pytest.mark.parametrize("name", STORES)
    def test_a_half_made_database_is_made_again(self, home: Home, name: str) -> None:
        path = home.dagster / name
        with closing(sqlite3.connect(path)) as store:
            store.execute("DROP TABLE alembic_version")
        assert exit_code(begun(lambda: opened(home))) == 0
        os.truncate(path, 0)
        assert exit_code(begun(lambda: opened(home))) == 0
        assert damages(home, thorough=True) == []

    def test_the_journal_of_a_deleted_database_is_not_applied_to_the_new_one(
        self, home: Home
    ) -> None:
        (home.dagster / RUNS).unlink()
        (home.dagster / f"{RUNS}-wal").write_bytes(b"of another" * 100)
        opened(home)
        assert damages(home, thorough=True) == []

    @pytest.mark.long
    def test_first_runs_at_the_same_time_all_succeed(self, tmp_path: Path) -> None:
        for number in range(ROUNDS):
            home = tmp_path / f"home{number}"
            words = [*ALMANAC, "run", "--days", "1", "--json"]
            env = {**environment(home), "ALMANAC_COINS": "bitcoin-sv"}
            runs = [
                subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
                for _ in range(AT_ONCE)
            ]
            assert [run.wait(HANGS_AFTER_S) for run in runs] == [0] * AT_ONCE
            assert damages(Home(home), thorough=True) == []


def flipped(path: Path) -> None:
    held = bytearray(path.read_bytes())
    for at in range(100, len(held), 97):
        held[at] ^= 0xFF
    path.write_bytes(held)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "truncated": lambda path: os.truncate(path, 5000),
    "text": lambda path: path.write_text("mine"),
    "folder": a_folder,
}


class TestDamage:
    @pytest.mark.parametrize(
        ("name", "harm"),
        [
            pytest.param(name, harm, marks=[] if name == RUNS or harm == "flipped" else LONG)
            for name in STORES
            for harm in HARMS
        ],
    )
    def test_no_command_ends_in_a_traceback_and_doctor_mends_it(
        self, home: Home, almanac: Almanac, name: str, harm: str
    ) -> None:
        path = home.dagster / name
        HARMS[harm](path)
        for words in (("run",), ("ui",), ("prune",)):
            done = almanac(*words, code=1)
            assert str(path.relative_to(home.root)) in done.stderr
            assert "`almanac doctor --fix`" in done.stderr
            assert done.stderr.count("\n") == 1
        assert [run.holds for run in check_runs(home, fix=False)] == [False]
        mended = list(check_runs(home, fix=True))
        assert [check.holds for check in mended] == [True, True]
        assert f"{path.name}.damaged-" in mended[0].found
        assert [aside.name for aside in path.parent.glob(f"{path.name}.damaged-*")]
        opened(home)


def test_a_database_without_one_of_its_tables_is_damaged(home: Home) -> None:
    path = home.dagster / INDEX
    with sqlite3.connect(path) as store:
        store.execute("DROP TABLE event_logs")
    with pytest.raises(RunRecordsDamaged, match=r"index\.db.*doctor --fix"), instance_of(home):
        pass


def test_damage_found_during_a_run_is_one_error_that_names_the_file(home: Home) -> None:
    path = home.dagster / RUNS
    with pytest.raises(RunRecordsDamaged, match=r"runs\.db.*doctor --fix"):  # noqa: SIM117
        with instance_of(home) as instance:
            with sqlite3.connect(path) as store:
                store.execute("DROP TABLE run_tags")
                store.execute("DROP TABLE runs")
            instance.get_runs()


def test_a_database_that_may_not_be_written_is_kept_and_opened_up(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.dagster / RUNS
    path.chmod(0o444)
    # Root may write everywhere, so permission is decided by the mode.
    monkeypatch.setattr(os, "access", lambda at, mode: bool(Path(at).stat().st_mode & 0o200))
    denied = r"runs\.db: this user can't read and write it\. Run the command as the user who owns"
    with pytest.raises(RunRecordsDamaged, match=denied):
        opened(home)
    (records, _) = check_runs(home, fix=True)
    assert records.holds
    assert "is now readable and writable" in records.found
    opened(home)


def full(path: Path) -> None:
    with sqlite3.connect(path) as store:
        store.execute("PRAGMA max_page_count = 1")
        store.execute("CREATE TABLE more AS SELECT * FROM runs")


def read_only(path: Path) -> None:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        store.execute("DROP TABLE runs")


def in_no_folder(path: Path) -> None:
    sqlite3.connect(path / "none" / "runs.db")


class TestSoundDatabases:
    """Errors of sound databases: one is in use, or the machine denies access."""

    @pytest.fixture
    def locked(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A database that another connection holds exclusively."""
        monkeypatch.setattr(run_store, "_BUSY_S", 0.05)
        path = home.dagster / RUNS
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("UPDATE kvs SET value = value")
            other.commit()
            yield path

    def test_a_locked_database_is_reported_in_use_and_doctor_keeps_it(
        self, home: Home, almanac: Almanac, locked: Path
    ) -> None:
        for words in (("run",), ("prune",)):
            done = almanac(*words, code=1)
            assert "is in use by another program" in done.stderr
            assert "doctor --fix" not in done.stderr
            assert done.stderr.count("\n") == 1
        inode = locked.stat().st_ino
        (records,) = check_runs(home, fix=True)
        assert not records.holds
        assert "in use" in records.found
        assert locked.stat().st_ino == inode
        assert list(locked.parent.glob("*.damaged-*")) == []

    @pytest.mark.parametrize("through_sqlalchemy", [False, True])
    def test_a_locked_database_during_a_run_is_reported_with_the_process_that_uses_the_home(
        self, home: Home, through_sqlalchemy: bool
    ) -> None:
        path = home.dagster / RUNS

        def work() -> None:
            with home.ui_lock():
                signal.pause()

        child = forked(work)
        wait_for(lambda: holder(home.state / "ui.lock"))
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
        try:
            with (
                closing(sqlite3.connect(path, isolation_level=None)) as other,
                pytest.raises(RunRecordsBusy, match=rf"in use by .*pid {child}, "),
                instance_of(home),
            ):
                other.execute("BEGIN IMMEDIATE")
                if through_sqlalchemy:
                    with engine.begin() as store:
                        store.execute(text("UPDATE kvs SET value = value"))
                else:
                    with closing(sqlite3.connect(path, timeout=0)) as direct:
                        direct.execute("BEGIN IMMEDIATE")
        finally:
            killed_after(child, 0)
        opened(home)

    @pytest.mark.parametrize(
        ("harm", "message"),
        [
            (full, "database or disk is full"),
            (read_only, "attempt to write a readonly database"),
            (in_no_folder, "unable to open database file"),
        ],
    )
    def test_an_error_of_the_machine_is_reported_and_is_no_damage(
        self, home: Home, harm: Callable[[Path], None], message: str
    ) -> None:
        with pytest.raises(RunRecordsInaccessible, match=message) as caught, instance_of(home):
            harm(home.dagster / RUNS)
        assert "doctor" not in str(caught.value)


def dead(home: Home, now: datetime | None = None) -> list[DeadRun]:
    with instance_of(home) as instance:
        return find_dead_runs(home, instance, now)


class TestDeadRuns:
    def test_a_run_whose_process_was_killed_is_dead_at_once_and_marked_failed(
        self, home: Home
    ) -> None:
        run_id = run_of(home)
        dies_with(home, run_id)
        assert [run.run_id for run in dead(home)] == [run_id]
        with instance_of(home) as instance:
            fail_dead_runs(home, instance)
        assert status_of(home, run_id) == "FAILURE"
        assert dead(home) == []
        assert list((home.dagster / "running").iterdir()) == []

    def test_a_run_with_a_living_process_is_never_failed(self, home: Home) -> None:
        run_id = run_of(home)
        announce(home, run_id)
        with instance_of(home) as instance:
            assert fail_dead_runs(home, instance) == []
        assert dead(home, utc_now() + 2 * ANNOUNCED_WITHIN) == []
        assert status_of(home, run_id) == "STARTED"

    def test_a_started_run_that_nobody_announced_is_dead_after_some_minutes(
        self, home: Home
    ) -> None:
        run_id = run_of(home)
        with instance_of(home) as instance:
            (record,) = instance.get_run_records()
        late = record.update_timestamp.replace(tzinfo=UTC) + ANNOUNCED_WITHIN
        assert dead(home) == []
        assert dead(home, late) == []
        late += timedelta(seconds=1)
        assert [run.run_id for run in dead(home, late)] == [run_id]
        with instance_of(home) as instance:
            fail_dead_runs(home, instance, late)
        assert status_of(home, run_id) == "FAILURE"

    def test_a_run_that_is_starting_is_left_to_dagster(self, home: Home) -> None:
        run_of(home)
        with sqlite3.connect(home.dagster / RUNS) as store:
            store.execute("UPDATE runs SET status = 'STARTING'")
        assert dead(home, utc_now() + 10 * ANNOUNCED_WITHIN) == []

    def test_a_run_that_was_starting_is_failed_when_the_programs_start_again(
        self, home: Home, almanac: Almanac
    ) -> None:
        run_id, living = run_of(home), run_of(home)
        announce(home, living)
        with sqlite3.connect(home.dagster / RUNS) as store:
            store.execute("UPDATE runs SET status = 'STARTING'")
        assert run_id in almanac("dagster", "prepare").output
        assert status_of(home, run_id) == "FAILURE"
        assert status_of(home, living) == "STARTING"

    def test_doctor_never_fails_a_run_that_nobody_announced(
        self, home: Home, almanac: Almanac
    ) -> None:
        run_id = run_of(home)
        with sqlite3.connect(home.dagster / RUNS) as store:
            store.execute("UPDATE runs SET update_timestamp = '2001-01-01 00:00:00'")
        assert all(run.holds for run in check_runs(home, fix=True))
        assert status_of(home, run_id) == "STARTED"

    def test_a_day_that_is_killed_when_its_run_is_just_recorded_is_known_to_be_dead(
        self, home: Home
    ) -> None:
        @dg.op
        def step() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        @dg.job(partitions_def=Layout().observed_days)
        def job() -> None:
            step()

        def work() -> None:
            with instance_of(home) as instance:
                run_day(home, job, utc_now().date(), instance, RunSummary())

        assert exit_code(forked(work)) == -signal.SIGKILL
        (run,) = dead(home)
        with instance_of(home) as instance:
            fail_dead_runs(home, instance)
        assert status_of(home, run.run_id) == "FAILURE"

    @pytest.mark.parametrize("place", ["between steps", "in a step"])
    def test_a_run_that_a_signal_ends_is_an_interrupt_also_between_its_steps(
        self, place: str, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*args: object) -> Iterator[dg.DagsterEvent]:
            raise KeyboardInterrupt
            yield

        @dg.op
        def step() -> None:
            raise KeyboardInterrupt

        @dg.job(partitions_def=Layout().observed_days)
        def job() -> None:
            step()

        if place == "between steps":
            plan = "dagster._core.executor.in_process.inner_plan_execution_iterator"
            monkeypatch.setattr(plan, interrupted)
        with instance_of(home) as instance, pytest.raises(KeyboardInterrupt):
            run_day(home, job, utc_now().date(), instance, RunSummary())
        with instance_of(home) as instance:
            (ended,) = instance.get_runs()
        assert ended.status is dg.DagsterRunStatus.CANCELED

    def test_doctor_names_a_dead_run_and_doctor_fix_marks_it_failed(self, home: Home) -> None:
        run_id = run_of(home)
        dies_with(home, run_id)
        records, runs = check_runs(home, fix=False)
        assert (records.holds, runs.holds) == (True, False)
        assert run_id[:8] in runs.found
        assert all(run.holds for run in check_runs(home, fix=True))
        assert status_of(home, run_id) == "FAILURE"

    def test_a_run_does_not_wait_for_the_slot_of_a_dead_run(self, home: Home) -> None:
        run_id = run_of(home)
        with instance_of(home) as instance:
            storage = instance.event_log_storage
            storage.set_concurrency_slots("catalog", 1)
            storage.claim_concurrency_slot("catalog", run_id, "step")

        @dg.op(pool="catalog")
        def step() -> None:
            return None

        @dg.job
        def job() -> None:
            step()

        def executed() -> None:
            with instance_of(home) as instance:
                assert job.execute_in_process(instance=instance).success

        assert exit_code(forked(executed)) == 0


class TestWaiting:
    @pytest.fixture
    def holding(self, home: Home) -> Iterator[int]:
        """A process that holds the locks of the home."""

        def work() -> None:
            with home.run_lock(), home.merge_lock():
                signal.pause()

        child = forked(work)
        wait_for(lambda: holder(home.state / "merge.lock"))
        yield child
        killed_after(child, 0)

    @pytest.mark.parametrize("words", [("run",), ("merge",), ("replay",), ("verify",), ("prune",)])
    def test_a_wait_for_a_lock_times_out_and_names_the_holder(
        self, almanac: Almanac, holding: int, words: tuple[str, ...]
    ) -> None:
        done = almanac(*words, code=1, wait_s="0.3")
        assert f"(pid {holding}, since " in done.stderr
        assert "after 0.3 s" in done.stderr
        assert "ALMANAC_WAIT_S" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_wait_with_a_fixed_limit_names_no_setting(
        self, home: Home, almanac: Almanac, holding: int
    ) -> None:
        os.truncate(home.dagster / RUNS, 0)
        (records,) = check_runs(home, fix=True)
        assert f"(pid {holding}, since " in records.found
        with home.ui_lock():
            done = almanac("ui", code=1)
        for message in (records.found, done.stderr):
            assert "is using this home" in message
            assert "ALMANAC_WAIT_S" not in message

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_wait_for_a_lock_is_reported_and_ends_with_a_signal(
        self, home: Home, holding: int, number: signal.Signals
    ) -> None:
        process = subprocess.Popen(
            [*ALMANAC, "merge"],
            cwd=home.root.parent,
            env=environment(home.root),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert f"(pid {holding}, since " in line
            process.send_signal(number)
            output = without_steps(process.communicate(timeout=HANGS_AFTER_S)[1])
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130
        assert output.count("\n") == 1
        assert "interrupted" in output.lower()

    def test_a_lock_is_released_when_its_process_dies(self, home: Home, holding: int) -> None:
        os.kill(holding, signal.SIGKILL)
        with home.run_lock(), home.merge_lock():
            shutil.rmtree(home.root)


def test_the_tags_of_runs_are_those_of_dagster() -> None:
    assert place.PARTITION_TAG == tags.PARTITION_NAME_TAG
    assert place.BACKFILL_TAG == tags.BACKFILL_ID_TAG
    assert place.REPOSITORY_TAG == tags.REPOSITORY_LABEL_TAG
