"""Commands that wait for another command on the same home."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import forked
from tests.test_cli import ALMANAC, environment
from warehouse.files.locks import holder
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data")
    home.claim("sandbox:1")
    return home


@pytest.fixture
def holding(home: Home) -> Iterator[int]:
    """A process that holds the locks of the home."""

    def work() -> None:
        with home.run_lock(), home.merge_lock():
            signal.pause()

    child = forked(work)
    wait_for(lambda: holder(home.state / "merge.lock"))
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("words", [("run",), ("merge",), ("replay",), ("verify",)])
def test_a_wait_for_a_lock_times_out_and_names_the_holder(
    almanac: Almanac, holding: int, words: tuple[str, ...]
) -> None:
    done = almanac(*words, code=1, wait_s="0.3")
    assert f"(pid {holding}, since " in done.stderr
    assert "after 0.3 s" in done.stderr
    assert "ALMANAC_WAIT_S" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wait_with_a_fixed_limit_names_no_setting(home: Home, almanac: Almanac) -> None:
    with home.ui_lock():
        done = almanac("daemon", code=1)
    assert "is using this home" in done.stderr
    assert "ALMANAC_WAIT_S" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_wait_for_a_lock_is_reported_and_ends_with_a_signal(
    home: Home, holding: int, number: signal.Signals
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


def test_a_lock_is_released_when_its_process_dies(home: Home, holding: int) -> None:
    os.kill(holding, signal.SIGKILL)
    with home.run_lock(), home.merge_lock():
        shutil.rmtree(home.root)
