"""`almanac verify` blames a home for its own faults alone, and says what is enough to end them."""

import resource
import subprocess
from functools import partial
from pathlib import Path

import duckdb
import pytest

from tests.test_cli import ALMANAC, environment
from tests.warehouse.inbox.deliveries import Clock, delivery, store
from warehouse.history.merge import merge, rebuild
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.inbox import Inbox


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Home:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    land(home, clock, 1)
    merge(home)
    return home


def land(home: Home, clock: Clock, number: int) -> None:
    store(home, clock.now(), delivery(number, at=clock.now()))
    Inbox(home).land(clock.now)
    clock.advance(days=1)


def wrong(home: Home, *, deep: bool = False) -> list[str]:
    return [f"{found.check}: {text}" for found in verify(home, deep=deep) for text in found.wrong]


def test_a_row_that_a_program_changed_is_detected(home: Home) -> None:
    home.warehouse.chmod(0o600)
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("UPDATE state.current_versions SET title = title || '!'")
    assert any("event_versions matches a rebuild" in text for text in wrong(home, deep=True))
    rebuild(home)
    assert wrong(home) == []


@pytest.mark.parametrize(
    "command",
    [
        ["rebuild"],
        *(pytest.param(c, marks=pytest.mark.long) for c in (["verify", "--deep"], ["merge"])),
    ],
)
def test_files_that_cannot_grow_are_said_in_one_line(
    home: Home, clock: Clock, command: list[str]
) -> None:
    land(home, clock, 2)
    if command[0] == "verify":
        merge(home)
    done = subprocess.run(
        [*ALMANAC, *command],
        # A file of bytecode that is cut would break later runs.
        env={**environment(home.root), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=home.root.parent,
        capture_output=True,
        text=True,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (16_384, 16_384)),
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    # Before it, a busy machine shows what the command waits for.
    line = done.stderr.splitlines()[-1]
    assert line.startswith("almanac: ")
    if command[0] == "verify":
        assert "The home may be intact" in line
        assert " NO " not in done.stdout
    merge(home)
    assert wrong(home) == []


def test_a_home_that_cannot_be_written_is_verified_and_nothing_is_written(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_size)
            for path in home.root.rglob("*")
            if path not in (home.state, home.checkpoints.root)
        }

    before = files()
    # A user who is root can write everywhere, so the answer is given here.
    monkeypatch.setattr("warehouse.history.verify._is_writable", lambda home: False)
    assert wrong(home, deep=True) == []
    assert files() == before
