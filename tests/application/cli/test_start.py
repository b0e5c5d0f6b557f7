"""How commands start and end: what they import, signals at any moment, and their exit."""

import inspect
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almanac.command_line import app, list_commands, load_extension
from tests.almanac.publications import publish_two_events
from tests.application.cli.test_sql import WITH_LITTLE_GRACE
from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.pipeline.small_home import SmallHome
from tests.test_cli import ALMANAC, environment
from warehouse.history.merge import merge
from warehouse.home import Home

ROOT = Path(__file__).parents[3]
BEGIN = """
import logging, os, signal, sys, time
from almanac.command_line import interrupt_by_signals
interrupt_by_signals()
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


def test_a_signal_that_does_not_interrupt_the_wait_still_ends_it() -> None:
    """As one does that arrives just before the main thread waits, or in another thread."""
    done = ended(
        "import threading\n"
        "from almanac.command_line import stop_by_signals, wait_until\n"
        "stop = threading.Event()\n"
        "stop_by_signals(stop.set)\n"
        "def send():\n"
        "    time.sleep(0.1)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=send).start()\n"
        "wait_until(stop)\n"
        "print('stopped')\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    done = subprocess.run(
        ["nohup", sys.executable, "-c", BEGIN + "os.kill(os.getpid(), signal.SIGHUP)"],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 0


def test_exit_flushes_output_waits_for_threads_runs_exit_handlers_and_destroys_no_object() -> None:
    done = ended(
        "import atexit, threading, time\n"
        "from almanac.command_line import exit_without_teardown\n"
        "class Held:\n"
        "    def __del__(self): print('taken apart')\n"
        "held = Held()\n"
        "atexit.register(print, 'handler')\n"
        "def late():\n"
        "    time.sleep(0.2)\n"
        "    print('thread')\n"
        "threading.Thread(target=late).start()\n"
        "print('said')\n"
        "exit_without_teardown(2)\n"
    )
    assert done.stdout.split() == ["said", "thread", "handler"]
    assert (done.returncode, done.stderr) == (2, "")


COUNTING = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
LISTS = "SELECT list_sum(range(i)) FROM range(100000) t(i)"
UNINTERRUPTIBLE = "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))"
"""A function that never checks for an interrupt."""
INTERRUPTED = "almanac: interrupted. Finished work is kept; run the command again to resume.\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    publish_two_events(folder)
    Home(folder).claim("sandbox:1")
    return folder


@contextmanager
def running_query(
    home: Path, folder: Path, sql: str, *form: str, program: list[str] = ALMANAC, **given: str
) -> Iterator[subprocess.Popen[str]]:
    """Yield a process once it runs a query."""
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [*program, "sql", sql, "--memory", "2GB", "--format", *form],
        cwd=folder,
        env={**environment(home), "TMPDIR": str(folder / "tmp"), **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: left(home, folder) or process.poll() is not None)
        time.sleep(0.3)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def left(home: Path, folder: Path) -> list[Path]:
    """Return the answers, temporary files and reading links that exist."""
    found = [*folder.rglob("*"), *home.glob(".reading-*")]
    return [path for path in found if path != folder / "tmp"]


@pytest.mark.parametrize(
    ("sql", "form", "program", "number"),
    [
        (LISTS, ("csv", "-o", "answer.csv"), ALMANAC, signal.SIGHUP),
        (UNINTERRUPTIBLE, ("csv",), WITH_LITTLE_GRACE, signal.SIGINT),
    ],
    ids=["interruptible", "uninterruptible"],
)
def test_a_signal_ends_a_query_at_once_and_leaves_no_file(
    home: Path,
    tmp_path: Path,
    sql: str,
    form: tuple[str, ...],
    program: list[str],
    number: signal.Signals,
) -> None:
    with running_query(home, tmp_path, sql, *form, program=program) as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output, without_steps(errors)) == (130, "", INTERRUPTED)
    assert left(home, tmp_path) == []


def test_a_stopped_answer_whose_connection_does_not_close_ends_all_the_same(
    home: Path, tmp_path: Path
) -> None:
    form = ("csv", "-o", "answer.csv")
    # The query must end within this time of its interrupt; only then is its connection closed.
    program = [sys.executable, "-m", "tests.warehouse.unclosable", "3"]
    given = {"program": program, "ALMANAC_SQL_TIMEOUT_S": "1"}
    with running_query(home, tmp_path, COUNTING, *form, **given) as process:  # type: ignore[arg-type]
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (1, "")
    assert "did not close a connection within 3 s" in errors
    assert errors.endswith(
        "almanac: the query was stopped: it took longer than 1 s (ALMANAC_SQL_TIMEOUT_S)\n"
    )
    assert left(home, tmp_path) == []


def test_the_help_has_each_command_in_one_panel_and_the_version_is_printed() -> None:
    shown = [name for names in load_extension().panels.values() for name in names]
    assert sorted(shown) == sorted(list_commands())
    help_text = CliRunner().invoke(app, ["--help"]).output
    panels = [line.split()[1] for line in help_text.splitlines() if line.startswith("╭─ ")]
    assert panels == ["Options", "Daily", "Questions", "Serve", "Push", "Maintenance"]
    assert CliRunner().invoke(app, ["--version"]).output == f"almanac {version('crypto-almanac')}\n"


SLOW = (*("dagster", "httpx", "catalog.sandbox", "catalog.server", "pandas", "pyarrow", "granian"),)
WITHOUT_THEM = (
    *(("--help",), ("status",), ("sql", "SELECT 1"), ("changes",)),
    *(("batches", "list"), ("run", "--help"), ("backfill", "--help"), ("doctor", "--help")),
    *(("inbox", "list"), ("receive", "--help")),
)
KEY = {
    "ALMANAC_BASE_URL": "https://api.example.com/v2",
    "ALMANAC_API_KEY": "canary-of-the-key",
    "ALMANAC_PLAN": "elite",
}
SHOWING_MODULES = (
    "import atexit, sys\n"
    f"slow = {SLOW!r}\n"
    "def show(): sys.stderr.write(' '.join(name for name in slow if name in sys.modules))\n"
    "atexit.register(show)\n"
)
EACH = (
    "import json, sys\n"
    "from almanac.command_line import app\n"
    "found = {}\n"
    "for words in json.loads(sys.argv[1]):\n"
    "    code = None\n"
    "    try: app(words)\n"
    "    except SystemExit as ended: code = ended.code\n"
    f"    imported = [name for name in {SLOW!r} if name in sys.modules]\n"
    "    found[' '.join(words)] = [code, imported]\n"
    "print(json.dumps(found))\n"
    "sys.exit()\n"
)
"""Runs commands one after the other. The last line is the exit code of each, and the slow modules
that are imported after it."""
START = "from almanac.command_line import main\nmain()\n"


def started(
    merged: Path, program: str, *words: str, **given: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program + START, *words],
        cwd=merged,
        env={**environment(merged), **given},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = SmallHome(tmp_path_factory.mktemp("start") / "data", KEY["ALMANAC_BASE_URL"][:-3])
    small.land()
    merge(small.home)
    return small.home.root


def test_no_quick_command_imports_dagster_the_server_or_the_http_client(merged: Path) -> None:
    done = started(merged, EACH, json.dumps(WITHOUT_THEM), **KEY)
    assert (done.returncode, without_steps(done.stderr)) == (0, ""), done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {" ".join(words): [0, []] for words in WITHOUT_THEM}


def test_a_help_reads_no_settings_and_imports_no_duckdb(merged: Path) -> None:
    program = SHOWING_MODULES.replace(repr(SLOW), "('duckdb', 'pipeline.secrecy')")
    done = started(merged, program, "run", "--help", ALMANAC_PLAN="unknown")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_lists_each_command_with_the_first_line_of_its_own_help() -> None:
    for name, place in list_commands().items():
        command = place.load(name)
        assert command.name == name
        first = inspect.cleandoc(command.help).partition("\n\n")[0]
        assert " ".join(first.split()) == place.summary


SIGNALLED = (*(("status", "pydantic"), ("run", "dagster")),)


@pytest.mark.parametrize(("command", "module"), SIGNALLED)
def test_a_signal_during_an_import_ends_in_one_line(
    tmp_path: Path, command: str, module: str
) -> None:
    """Wherever the import is: before the command, or in the command where it is used."""
    program = (
        "import os, signal, sys, time\n"
        "def interrupt(event, given):\n"
        f"    if event == 'import' and given[0] == {module!r} and not seen:\n"
        "        seen.append(1); os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.01)\n"
        "seen = []\n"
        "sys.addaudithook(interrupt)\n"
    )
    words = {"run": ("run", "--days", "1")}.get(command, (command,))
    done = started(tmp_path, program, *words)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert "nterrupted" in done.stderr and without_steps(done.stderr).count("\n") == 1
