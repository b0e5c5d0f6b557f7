"""What a command imports before it works: little enough to start at once, and interruptible."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from almanac.command_line import commands
from tests.hangs import HANGS_AFTER_S, without_steps
from tests.pipeline.small_home import SmallHome
from tests.test_cli import environment
from warehouse.history.merge import merge

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
    home: Path, program: str, *words: str, **given: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program + START, *words],
        cwd=home,
        env={**environment(home), **given},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = SmallHome(tmp_path_factory.mktemp("start") / "data", KEY["ALMANAC_BASE_URL"][:-3])
    small.land()
    merge(small.home)
    return small.home.root


def test_no_quick_command_imports_dagster_the_server_or_the_http_client(home: Path) -> None:
    done = started(home, EACH, json.dumps(WITHOUT_THEM), **KEY)
    assert (done.returncode, without_steps(done.stderr)) == (0, ""), done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {" ".join(words): [0, []] for words in WITHOUT_THEM}


@pytest.mark.parametrize("name", ["run", "accounts", "sandbox"])
def test_a_help_reads_no_settings_and_imports_no_duckdb(home: Path, name: str) -> None:
    program = SHOWING_MODULES.replace(repr(SLOW), "('duckdb', 'pipeline.secrecy')")
    done = started(home, program, name, "--help", ALMANAC_PLAN="unknown")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_list_of_commands_imports_no_command_and_no_settings(home: Path) -> None:
    program = SHOWING_MODULES.replace(repr(SLOW), "('pydantic', 'duckdb', 'pipeline.settings')")
    done = started(home, program, "--help")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", commands())
def test_the_help_lists_each_command_with_the_first_line_of_its_own_help(name: str) -> None:
    command = commands()[name].load(name)
    assert command.name == name
    first = inspect.cleandoc(command.help).partition("\n\n")[0]
    assert " ".join(first.split()) == commands()[name].summary


def test_every_command_of_a_module_is_listed() -> None:
    listed = {place.name for place in commands().values()}
    for place in commands().values():
        module = sys.modules[place.module]
        groups = {name for name, value in vars(module).items() if isinstance(value, typer.Typer)}
        assert not groups or groups & listed


SIGNALLED = (
    *(("status", "pipeline.health.warnings"), ("status", "pydantic"), ("sql", "duckdb")),
    *(("run", "dagster"), ("doctor", "httpx"), ("sandbox", "granian")),
)


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
    words = {"sql": ("sql", "SELECT 1"), "run": ("run", "--days", "1")}.get(command, (command,))
    done = started(tmp_path, program, *words)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert "nterrupted" in done.stderr and without_steps(done.stderr).count("\n") == 1
