"""The temporary folder of a process is private, and removed when it ends or by a later process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from almanac.core.files import find_leftovers, own_folder, remove_own_folders
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
WRITE = """
import sys
from almanac.core.files import own_folder
(own_folder() / "answer").write_text("secret")
print(own_folder(), flush=True)
"""
WAIT = "sys.stdin.read()\n"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def process(temporary: Path, program: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """Yield a process and its folder; the process is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        yield started, Path(started.stdout.readline().strip())
        started.kill()


def test_the_next_process_removes_the_folder_of_a_killed_one(temporary: Path) -> None:
    with process(temporary, WRITE + WAIT) as (_, killed):
        assert killed.parent == temporary
        assert killed.stat().st_mode & 0o077 == 0
    with process(temporary, WRITE + WAIT) as (_, living):
        assert not killed.exists()
        assert list(find_leftovers()) == []
        mine = own_folder()
        assert (living / "answer").read_text() == "secret"
        assert own_folder() == mine
    assert list(find_leftovers()) == [living]
    remove_own_folders()
    assert not mine.exists()
    assert own_folder() != mine
    assert not living.exists()


def test_a_process_that_ends_removes_its_folder(temporary: Path) -> None:
    with process(temporary, WRITE) as (ended, folder):
        assert ended.wait(HANGS_AFTER_S) == 0
        assert not folder.exists()
    assert list(temporary.iterdir()) == []


def test_folders_of_others_are_kept(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("almanac-process-theirs", "almanac-bench-ours", "almanac-process-file", "target"):
        (temporary / name).mkdir() if "file" not in name else (temporary / name).touch()
    (temporary / "almanac-process-link").symlink_to(temporary / "target")
    before = sorted(temporary.iterdir())
    me = os.getuid()
    with monkeypatch.context() as patch:
        patch.setattr("almanac.core.files.os.getuid", lambda: me + 1)
        own_folder()
        assert list(find_leftovers()) == []
        remove_own_folders()
    assert sorted(temporary.iterdir()) == before
    assert list(find_leftovers()) == [temporary / "almanac-process-theirs"]
