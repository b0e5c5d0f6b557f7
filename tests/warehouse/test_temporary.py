"""The temporary folder of a process is private, and removed when it ends or by a later process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from almanac.reading.temporary_files import leftovers, own_folder, remove_own_folders
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
WRITE = """
import sys
from almanac.reading.temporary_files import own_folder
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


def test_the_next_process_removes_the_folder_of_a_killed_one_and_keeps_that_of_a_live_one(
    temporary: Path,
) -> None:
    with process(temporary, WRITE + WAIT) as (_, killed):
        assert killed.parent == temporary
        assert killed.stat().st_mode & 0o077 == 0
    with process(temporary, WRITE + WAIT) as (_, living):
        assert not killed.exists()
        assert list(leftovers()) == []
        mine = own_folder()
        assert (living / "answer").read_text() == "secret"
        assert own_folder() == mine
    assert list(leftovers()) == [living]
    remove_own_folders()
    assert not mine.exists()
    assert own_folder() != mine
    assert not living.exists()


def test_a_process_that_ends_removes_its_folder(temporary: Path) -> None:
    with process(temporary, WRITE) as (ended, folder):
        assert ended.wait(HANGS_AFTER_S) == 0
        assert not folder.exists()
    assert list(temporary.iterdir()) == []


def test_a_fork_has_a_folder_of_its_own_and_leaves_that_of_its_parent(temporary: Path) -> None:
    program = WRITE + (
        "import os\n"
        "if os.fork() == 0:\n"
        "    print(own_folder(), flush=True)\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print(own_folder().exists(), flush=True)\n"
    )
    with process(temporary, program) as (ended, parents):
        assert ended.stdout is not None
        # Not communicate(), which would skip the text in the buffer of readline.
        childs, is_there = ended.stdout.read().split()
    assert is_there == "True"
    assert Path(childs) != parents
    assert list(temporary.iterdir()) == []


def test_folders_of_other_users_and_programs_are_kept(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("almanac-process-theirs", "almanac-bench-ours", "almanac-process-file", "target"):
        (temporary / name).mkdir() if "file" not in name else (temporary / name).touch()
    (temporary / "almanac-process-link").symlink_to(temporary / "target")
    before = sorted(temporary.iterdir())
    me = os.getuid()
    with monkeypatch.context() as patch:
        patch.setattr("almanac.reading.temporary_files.os.getuid", lambda: me + 1)
        own_folder()
        assert list(leftovers()) == []
        remove_own_folders()
    assert sorted(temporary.iterdir()) == before
    assert list(leftovers()) == [temporary / "almanac-process-theirs"]


def test_a_folder_that_was_removed_by_hand_is_made_again(temporary: Path) -> None:
    first = own_folder()
    first.rmdir()
    second = own_folder()
    assert second.is_dir()
    remove_own_folders()
    assert list(temporary.iterdir()) == []
