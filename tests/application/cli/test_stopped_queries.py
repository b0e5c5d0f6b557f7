"""Signals to `almanac sql` while DuckDB runs and no Python handler can."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.almanac.publications import publish_two_events
from tests.application.cli.test_sql import WITH_LITTLE_GRACE
from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

COUNTING = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
LISTS = "SELECT list_sum(range(i)) FROM range(100000) t(i)"
SPILLING = (
    "SELECT max(a) FROM (SELECT row_number() OVER (ORDER BY md5(range::VARCHAR)) AS a "
    "FROM range(1000000000))"
)
UNINTERRUPTIBLE = "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))"
"""A function that never checks for an interrupt."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED_SOON = {"ALMANAC_SQL_TIMEOUT_S": "1"}
FORMS = (("table",), ("csv",), ("csv", "-o", "answer.csv"))
INTERRUPTED = "almanac: interrupted. Finished work is kept; run the command again to resume.\n"


def unclosable(grace_s: float) -> list[str]:
    """Return the command with connections that do not close, and the grace for closing them."""
    return [sys.executable, "-m", "tests.warehouse.unclosable", str(grace_s)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    publish_two_events(folder)
    Home(folder).claim("sandbox:1")
    return folder


class Workplace:
    """A working folder, one for temporary files, and queries that run there."""

    def __init__(self, home: Path, root: Path) -> None:
        self.home, self.work, self.temporary = home, root / "work", root / "temporary"
        self.work.mkdir()
        self.temporary.mkdir()

    @contextmanager
    def running_query(
        self, sql: str, *form: str, program: list[str] = ALMANAC, memory: str = "2GB", **given: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Yield a process once it runs a query."""
        process = subprocess.Popen(
            [*program, "sql", sql, "--memory", memory, *(("--format", *form) if form else ())],
            cwd=self.work,
            env={**environment(self.home), "TMPDIR": str(self.temporary), **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: self.left() or process.poll() is not None)
            time.sleep(0.3)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()
            process.communicate()

    def left(self) -> list[str]:
        """Return the answers, temporary files and reading links that exist."""
        return [
            str(path)
            for folder in (self.work, self.temporary)
            for path in [*folder.rglob("*"), *self.home.glob(".reading-*")]
        ]


@pytest.fixture
def workplace(home: Path, tmp_path: Path) -> Workplace:
    return Workplace(home, tmp_path)


def assert_ends(
    workplace: Workplace, process: subprocess.Popen[str], number: signal.Signals
) -> None:
    process.send_signal(number)
    output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output, without_steps(errors)) == (130, "", INTERRUPTED)
    assert workplace.left() == []


@pytest.mark.parametrize(
    ("number", "sql", "form"),
    [
        (signal.SIGTERM, COUNTING, ("table",)),
        (signal.SIGHUP, LISTS, ("csv", "-o", "answer.csv")),
    ],
    ids=["SIGTERM", "SIGHUP"],
)
def test_a_signal_ends_a_query_at_once_and_leaves_no_file(
    workplace: Workplace, number: signal.Signals, sql: str, form: tuple[str, ...]
) -> None:
    with workplace.running_query(sql, *form) as process:
        assert_ends(workplace, process, number)


def test_a_signal_ends_an_uninterruptible_query_and_leaves_no_file(workplace: Workplace) -> None:
    with workplace.running_query(UNINTERRUPTIBLE, "csv", program=WITH_LITTLE_GRACE) as process:
        assert_ends(workplace, process, signal.SIGINT)


def test_a_stopped_answer_whose_connection_does_not_close_ends_all_the_same(
    workplace: Workplace,
) -> None:
    answer = ("csv", "-o", "answer.csv")
    with workplace.running_query(
        COUNTING, *answer, program=unclosable(0.1), **STOPPED_SOON
    ) as process:
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (1, "")
    assert "did not close a connection within 0.1 s" in errors
    assert errors.endswith(
        "almanac: the query was stopped: it took longer than 1 s (ALMANAC_SQL_TIMEOUT_S)\n"
    )
    assert workplace.left() == []


def test_a_signal_ends_a_program_whose_connection_does_not_close(workplace: Workplace) -> None:
    answer = ("csv", "-o", "answer.csv")
    with workplace.running_query(
        "SELECT 1", *answer, program=unclosable(100 * HANGS_AFTER_S)
    ) as process:
        assert_ends(workplace, process, signal.SIGINT)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("sql", [COUNTING, LISTS, SPILLING, UNINTERRUPTIBLE])
def test_each_signal_ends_each_query_in_each_form(
    workplace: Workplace, number: signal.Signals, sql: str, form: tuple[str, ...]
) -> None:
    with workplace.running_query(sql, *form, memory="100MB") as process:
        if sql is SPILLING:
            wait_for(lambda: any("spill-" in name for name in workplace.left()))
        assert_ends(workplace, process, number)
