"""`almanac verify` blames a home for its own faults alone, and says what is enough to end them."""

import resource
import subprocess
from functools import partial
from pathlib import Path

import pytest

from resources.inbox.deliveries import land_deliveries
from resources.inbox.inbox_file import Arrival, InboxWriter
from tests.resources.inbox.deliveries import Clock, delivery
from tests.test_cli import ALMANAC, environment
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home


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
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(delivery(number, at=clock.now()))])
    land_deliveries(home, clock.now)
    clock.advance(days=1)


def wrong(home: Home, *, deep: bool = False) -> list[str]:
    return [f"{found.check}: {text}" for found in verify(home, deep=deep) for text in found.wrong]


def test_after_a_merge_that_did_not_publish_a_merge_is_enough(home: Home, clock: Clock) -> None:
    land(home, clock, 2)
    merge(home, publishing=False)
    found = wrong(home)
    assert any("the next `almanac run` or `almanac merge` publishes" in text for text in found)
    assert not any("replay" in text for text in found)
    merge(home)
    assert wrong(home, deep=True) == []


def test_a_changed_warehouse_still_needs_a_replay(home: Home, clock: Clock) -> None:
    land(home, clock, 2)
    merge(home, publishing=False)
    home.warehouse.chmod(0o600)
    with home.warehouse.open("ab") as file:
        file.write(b"\0")
    assert any("`almanac replay` rebuilds" in text for text in wrong(home))


@pytest.mark.parametrize("command", [["verify", "--deep"], ["replay"], ["merge"]])
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
    assert done.stderr, done.stdout
    # Before it, a busy machine shows what the command waits for.
    line = done.stderr.splitlines()[-1]
    assert line.startswith("almanac: ")
    if command[0] == "verify":
        assert "This says nothing of the home" in line
        assert " NO " not in done.stdout
    merge(home)
    assert wrong(home, deep=True) == []


def test_a_home_that_cannot_be_written_is_verified_and_nothing_is_written(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_size)
            for path in home.root.rglob("*")
            # Where it can be written, what was read is noted there.
            if path not in (home.state, home.state / "change_log.json")
        }

    before = files()
    # A user who is root can write everywhere, so the answer is given here.
    monkeypatch.setattr("warehouse.history.verify._is_writable", lambda home: False)
    assert wrong(home, deep=True) == []
    assert files() == before
