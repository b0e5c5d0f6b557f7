"""The programs of `almanac ui`: their address, and those that an earlier one left running."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep

import msgspec
import pytest

from pipeline.ui import programs
from pipeline.ui.attached import ATTACHED
from pipeline.ui.names import DAEMON, PagesAddress, lock_of
from pipeline.ui.programs import end_orphans
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes.run_records import forked, killed_after
from warehouse.errors import LockHeld
from warehouse.files.locks import hold_lock, holder
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(programs, "_ORPHANS_S", 0.2)
    return Home(tmp_path / "home")


@pytest.fixture
def orphan(home: Home) -> Iterator[int]:
    """A process that holds the daemon's lock and does not end by itself."""
    lock = lock_of(home, DAEMON)

    def work() -> None:
        with hold_lock(lock, "to be the daemon"):
            signal.pause()

    child = forked(work)
    while holder(lock) is None:
        sleep(0.01)
    yield child
    with suppress(ProcessLookupError, ChildProcessError):
        killed_after(child, 0)


def has_ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def test_a_program_that_an_earlier_one_left_is_ended(home: Home, orphan: int) -> None:
    end_orphans(home)
    assert os.waitpid(orphan, 0)[0] == orphan


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"machine": "elsewhere", "host": "elsewhere"}, id="of another host"),
        pytest.param({"started": "1"}, id="an earlier process of that id"),
        pytest.param({"machine": ""}, id="of an earlier version"),
    ],
)
def test_a_process_that_may_be_another_is_never_ended(
    home: Home, orphan: int, change: dict[str, str]
) -> None:
    lock = lock_of(home, DAEMON)
    found = holder(lock)
    assert found is not None
    lock.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, **change)))
    with pytest.raises(LockHeld, match=rf"dagster-daemon of another .*pid {orphan}") as taken:
        end_orphans(home)
    assert change.get("host", "") in str(taken.value)
    assert not has_ended(orphan)


def test_a_lock_without_a_holder_is_reported_and_no_process_is_stopped(
    home: Home, orphan: int
) -> None:
    lock_of(home, DAEMON).write_bytes(b"")
    with pytest.raises(LockHeld, match="another process holds"):
        end_orphans(home)
    assert not has_ended(orphan)


def test_a_program_whose_lock_another_holds_says_so_in_a_line(home: Home, orphan: int) -> None:
    words = [sys.executable, "-m", ATTACHED, str(lock_of(home, DAEMON)), DAEMON, "run"]
    done = subprocess.run(
        words, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=HANGS_AFTER_S
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"(pid {orphan}, since " in done.stderr


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
    assert PagesAddress(host=host, port=3000).url == address


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_an_address_that_others_reach_is_known_as_one(host: str, is_local: bool) -> None:
    assert PagesAddress(host=host, port=3000).is_local is is_local
