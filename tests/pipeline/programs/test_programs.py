"""All programs end when one ends or a signal comes, with all processes that they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pipeline.ui import programs as ui_programs
from pipeline.ui.programs import LOCK, DagsterPrograms, WebAddress, _hold_lock, prepare
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.homes.run_records import run_of
from tests.test_cli import ROOT
from warehouse.errors import LockHeld
from warehouse.home import Home

CHILD = "tests.pipeline.programs.child"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(ui_programs, "_STOP_CLIENTS_S", 0.5)
    monkeypatch.setattr(ui_programs, "_STOP_S", 1.0)
    monkeypatch.setattr(ui_programs, "_ORPHANS_S", 0.3)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "dagster").mkdir()
    return Home(tmp_path)


class Starter:
    """Starts stand-ins of programs in this process."""

    def __init__(self, home: Home, lock: object) -> None:
        self._hangs_at = time.monotonic() + HANGS_AFTER_S
        self.programs = DagsterPrograms(home, lock, self._stopped)  # type: ignore[arg-type]

    def _stopped(self, seconds: float) -> bool:
        time.sleep(0.02)
        return time.monotonic() > self._hangs_at

    def start(self, name: str, *words: str) -> int:
        self.programs.start(name, [CHILD, *words])
        return self.programs._running[name].pid


@pytest.fixture
def starter(home: Home) -> Iterator[Starter]:
    with _hold_lock(home) as lock:
        starter = Starter(home, lock)
        try:
            yield starter
        finally:
            starter.programs.stop()


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def read_pid(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text())
    return int(path.read_text())


@pytest.mark.parametrize(("killed", "how"), [(False, "with code 1"), (True, "by SIGKILL")])
def test_a_program_that_exits_ends_the_command_and_its_reason_is_printed(
    starter: Starter, capfd: pytest.CaptureFixture[str], killed: bool, how: str
) -> None:
    starter.start("the code server", "idle")
    pid = starter.start("dagster-daemon", *(("idle",) if killed else ("exits", "gone")))
    if killed:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(typer.Exit) as ended:
        starter.programs.watch()
    assert ended.value.exit_code == 1
    printed = capfd.readouterr().err
    assert f"dagster-daemon ended {how}: its reason is above" in printed
    assert killed or "no database: gone\n" in printed


def test_a_program_that_ignores_the_signal_is_killed_with_its_children(
    starter: Starter, home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    child, are_deaf = home.root / "child", [home.root / name for name in ("first", "second")]
    starter.start("the code server", "parent", str(child), "stubborn", str(are_deaf[0]))
    starter.start("dagster-daemon", "stubborn", str(are_deaf[1]))
    pid = read_pid(child)
    wait_for(lambda: all(file.exists() for file in are_deaf))
    starter.programs.stop()
    assert "did not end in time and was killed" in capfd.readouterr().err
    # The signal to the child is sent by then; its end takes a moment on a busy machine.
    wait_for(lambda: not lives(pid))


def test_runs_that_outlived_their_code_server_are_ended_too(starter: Starter, home: Home) -> None:
    child = home.root / "child"
    server = starter.start("the code server", "parent", str(child), "idle")
    pid = read_pid(child)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(typer.Exit):
        starter.programs.watch()
    assert lives(pid)
    starter.programs.stop()
    wait_for(lambda: not lives(pid))


STARTS_AND_IS_KILLED = f"""
import os, signal, sys
from pathlib import Path
from pipeline.ui.programs import DagsterPrograms, _hold_lock
from warehouse.home import Home
home = Home(Path(sys.argv[1]))
with _hold_lock(home) as lock:
    programs = DagsterPrograms(home, lock, lambda seconds: False)
    ready = home.root / "ready"
    programs.start("a", [{CHILD!r}, sys.argv[2], str(ready)], ready.exists)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["idle", "stubborn"])
def test_programs_end_with_a_killed_starter_and_hold_the_lock_until_then(
    home: Home, kind: str
) -> None:
    words = [sys.executable, "-c", STARTS_AND_IS_KILLED, str(home.root), kind]
    assert subprocess.run(words).returncode == -signal.SIGKILL
    pid = int((home.dagster / LOCK).read_text())
    if kind == "stubborn":
        with pytest.raises(LockHeld, match=f"process ids {pid}"), _hold_lock(home):
            pass
    wait_for(lambda: not lives(pid))
    with _hold_lock(home):
        assert (home.dagster / LOCK).read_text() == ""


def test_logs_are_utf_8_on_standard_error_whatever_the_locale(
    starter: Starter, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    starter.start("the code server", "prints", "漢字 déjà vu")
    with pytest.raises(typer.Exit):
        starter.programs.watch()
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "漢字 déjà vu\n" in shown.err


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:3000"),
        ("localhost", "http://localhost:3000"),
        ("::1", "http://[::1]:3000"),
        ("::", "http://[::]:3000"),
    ],
)
def test_the_address_of_a_host_is_one_that_a_browser_reads(host: str, address: str) -> None:
    assert WebAddress(host=host, port=3000).url == address


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_an_address_that_others_reach_is_known_as_one(host: str, is_local: bool) -> None:
    assert WebAddress(host=host, port=3000).is_local is is_local


def test_the_killed_runs_of_a_start_are_reported_on_standard_error_alone(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = run_of(home)
    prepare(home)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert f"Run {run_id} was killed; it is marked failed." in shown.err
