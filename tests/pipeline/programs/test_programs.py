"""All programs end when one ends or a signal comes, with all processes that they started."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from pipeline.ui import programs as ui_programs
from pipeline.ui.logs import ProgramLog
from pipeline.ui.names import CODE_SERVER, DAEMON
from pipeline.ui.programs import DagsterPrograms, Program
from warehouse.clock import utc_now
from warehouse.home import Home

IDLE = "exec sleep 60"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


class Script(Program):
    """A program that is a line of shell."""

    def __init__(self, name: str, home: Home, line: str) -> None:
        home.dagster.mkdir(parents=True, exist_ok=True)
        log = ProgramLog(home.dagster / f"{name}.log", log_format="text", now=utc_now)
        super().__init__(name, home, [], log)
        self._line = line

    def command(self) -> list[str]:
        return ["sh", "-c", self._line]


class Rounds:
    """A stand-in for the wait for a signal: it comes after so many rounds, or never too late."""

    def __init__(self, until: Callable[[], bool]) -> None:
        self.waited: list[float] = []
        self._until = until

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        time.sleep(0.01)
        return self._until() or len(self.waited) > 2000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(ui_programs, "_STOP_DAEMON_S", 0.3)
    monkeypatch.setattr(ui_programs, "_STOP_S", 0.8)
    return Home(tmp_path)


@pytest.fixture
def started(home: Home) -> Iterator[Callable[..., DagsterPrograms]]:
    running: list[Script] = []

    def start(daemon: str, code: str, until: Callable[[], bool]) -> DagsterPrograms:
        client, server = Script(DAEMON, home, daemon), Script(CODE_SERVER, home, code)
        running.extend((server, client))
        for program in running:
            program.start()
        return DagsterPrograms(home, server, [client], Rounds(until))

    yield start
    for program in running:
        program.signal(signal.SIGKILL)
        program.wait(time.monotonic() + 5)


def log_of(home: Home, name: str) -> str:
    path = home.dagster / f"{name}.log"
    return path.read_text() if path.exists() else ""


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent to notice."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] in ("", "Z")


@pytest.mark.parametrize(
    ("daemon", "code", "said"),
    [
        (IDLE, "echo no database; exit 3", "dagster-code-server ended with code 3: no database"),
        ("kill -KILL $$", IDLE, "dagster-daemon was ended by SIGKILL"),
    ],
)
def test_a_program_that_exits_ends_the_command_with_its_last_line(
    home: Home,
    started: Callable[..., DagsterPrograms],
    capsys: pytest.CaptureFixture[str],
    daemon: str,
    code: str,
    said: str,
) -> None:
    programs = started(daemon, code, lambda: False)
    with pytest.raises(typer.Exit) as ended:
        programs.watch()
    programs.stop()
    assert ended.value.exit_code == 1
    assert said in capsys.readouterr().err


def test_what_ignores_the_signal_is_killed_with_its_children_in_time(
    home: Home, started: Callable[..., DagsterPrograms]
) -> None:
    child = home.root / "child"
    # The child outlives its parent, as a run does whose code server was killed.
    line = f'sh -c "{STUBBORN}" & echo $! > {child}; {STUBBORN}'
    programs = started(STUBBORN, line, lambda: "ready" in log_of(home, CODE_SERVER))
    programs.watch()
    began = time.monotonic()
    programs.stop()
    assert time.monotonic() - began < 3
    for name in (DAEMON, CODE_SERVER):
        assert "did not end in time: killed" in log_of(home, name)
    assert has_ended(int(child.read_text()))


def test_runs_that_outlived_their_code_server_are_ended_too(
    home: Home, started: Callable[..., DagsterPrograms]
) -> None:
    child = home.root / "child"
    programs = started(IDLE, f"sleep 60 & echo $! > {child}; exit 1", lambda: False)
    with pytest.raises(typer.Exit):
        programs.watch()
    os.kill(int(child.read_text()), 0)
    programs.stop()
    assert has_ended(int(child.read_text()))


def test_a_poll_in_a_session_of_its_own_has_ended_when_all_is_stopped(
    home: Home, started: Callable[..., DagsterPrograms]
) -> None:
    child = home.root / "child"
    # It ends a little after the pipe of its starter closed, as a poll does.
    line = f"sleep 60 | setsid sh -c 'echo $$ > {child}; echo ready; cat; sleep 0.3'"
    programs = started(IDLE, line, lambda: "ready" in log_of(home, CODE_SERVER))
    programs.watch()
    programs.stop()
    assert has_ended(int(child.read_text()))
