"""Signals to `almanac sql` while DuckDB runs, where no handler of Python does."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pipeline.cli.test_sql import WITH_LITTLE_GRACE
from tests.test_cli import ALMANAC, environment
from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.home import Home

COUNTING = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
LISTS = "SELECT list_sum(range(i)) FROM range(100000) t(i)"
SPILLING = (
    "SELECT max(a) FROM (SELECT row_number() OVER (ORDER BY md5(range::VARCHAR)) AS a "
    "FROM range(1000000000))"
)
DEAF = "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))"
"""It never looks whether it is interrupted."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED_SOON = {"ALMANAC_SQL_TIMEOUT_S": "1"}
FORMS = (("table",), ("csv",), ("csv", "-o", "answer.csv"))
BEGUN_S = 30.0
ENDED_S = 15.0
"""Beyond the grace of 5 s, on a busy machine."""
SAID = "almanac: interrupted. Finished work is kept; run the command again to resume.\n"


def unclosable(grace_s: float) -> list[str]:
    """Return the command, whose connections do not close and have so long for it."""
    return [sys.executable, "-m", "tests.warehouse.unclosable", str(grace_s)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    lake = SmallLake(folder)
    lake.set_plans([Plan((Op(0, seed=1), Op(1, seed=2)))])
    lake.publish()
    Home(folder).claim("sandbox:1")
    return folder


class Desk:
    """A folder to work in, one for temporary files, and queries that are begun there."""

    def __init__(self, home: Path, root: Path) -> None:
        self.home, self.work, self.temporary = home, root / "work", root / "temporary"
        self.work.mkdir()
        self.temporary.mkdir()

    @contextmanager
    def asking(
        self, sql: str, *form: str, program: list[str] = ALMANAC, **given: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Lend a process that runs a query, once it does."""
        process = subprocess.Popen(
            [*program, "sql", sql, *(("-f", *form) if form else ())],
            cwd=self.work,
            env={**environment(self.home), "TMPDIR": str(self.temporary), **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            give_up_at = time.monotonic() + BEGUN_S
            while not self.left() and process.poll() is None:
                assert time.monotonic() < give_up_at
                time.sleep(0.05)
            time.sleep(0.3)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()
            process.communicate()

    def left(self) -> list[str]:
        """Return what there is of answers and temporary files, and of other names of the home."""
        return [
            str(path)
            for folder in (self.work, self.temporary)
            for path in [*folder.rglob("*"), *self.home.glob(".reading-*")]
        ]


@pytest.fixture
def desk(home: Path, tmp_path: Path) -> Desk:
    return Desk(home, tmp_path)


def assert_ends(desk: Desk, process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    output, errors = process.communicate(timeout=ENDED_S)
    assert (process.returncode, output, errors) == (130, "", SAID)
    assert desk.left() == []


@pytest.mark.parametrize(
    ("number", "sql", "form"),
    [
        (signal.SIGTERM, COUNTING, ("table",)),
        (signal.SIGHUP, LISTS, ("csv", "-o", "answer.csv")),
    ],
    ids=["SIGTERM", "SIGHUP"],
)
def test_a_signal_ends_a_query_at_once_and_leaves_nothing(
    desk: Desk, number: signal.Signals, sql: str, form: tuple[str, ...]
) -> None:
    with desk.asking(sql, *form) as process:
        assert_ends(desk, process, number)


def test_a_signal_ends_a_query_that_never_looks_and_leaves_nothing(desk: Desk) -> None:
    with desk.asking(DEAF, "csv", program=WITH_LITTLE_GRACE) as process:
        assert_ends(desk, process, signal.SIGINT)


def test_a_stopped_answer_whose_connection_does_not_close_ends_all_the_same(desk: Desk) -> None:
    answer = ("csv", "-o", "answer.csv")
    with desk.asking(COUNTING, *answer, program=unclosable(0.1), **STOPPED_SOON) as process:
        output, errors = process.communicate(timeout=ENDED_S)
    assert (process.returncode, output) == (1, "")
    assert "did not close a connection within 0.1 s" in errors
    assert errors.endswith(
        "almanac: the query was stopped: it took longer than 1 s (ALMANAC_SQL_TIMEOUT_S)\n"
    )
    assert desk.left() == []


def test_a_signal_ends_a_program_whose_connection_does_not_close(desk: Desk) -> None:
    answer = ("csv", "-o", "answer.csv")
    with desk.asking("SELECT 1", *answer, program=unclosable(600.0)) as process:
        assert_ends(desk, process, signal.SIGINT)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("sql", [COUNTING, LISTS, SPILLING, DEAF])
def test_each_signal_ends_each_query_in_each_form(
    desk: Desk, number: signal.Signals, sql: str, form: tuple[str, ...]
) -> None:
    with desk.asking(sql, *form, ALMANAC_SQL_MEMORY="100MB") as process:
        if sql is SPILLING:
            wait_for_spill(desk)
        assert_ends(desk, process, number)


def wait_for_spill(desk: Desk) -> None:
    give_up_at = time.monotonic() + BEGUN_S
    while not any("spill-" in name for name in desk.left()):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
