"""Atomic writes, locks, and the temporary folder of a process.

A process has its temporary files in `<temporary folder>/almanac-process-…/`. It holds an OS lock
on this folder until it ends. A folder whose lock is free was left by a killed process; the next
process of the same user removes it. `fcntl` is used directly: importing `filelock` takes 0.1 s,
which each command would pay.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

_PREFIX: Final = "almanac-process-"
_ENDED: Final = "-ended"
UNFINISHED: Final = ".unfinished-"
"""Names of temporary files beside their targets begin so. A killed writer leaves its file."""


@contextmanager
def replace_file(target: Path, *, is_durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path; the file written there then replaces `target`.

    So nobody reads a part of it, and it outlasts a power failure if `is_durable`. On an error
    `target` is unchanged, and the temporary file is removed.
    """
    staged = target.with_name(f"{UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}")
    try:
        yield staged
        if is_durable:
            put_in_place(staged, target)
        else:
            staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def put_in_place(staged: Path, target: Path) -> None:
    """Rename a finished file or folder durably, replacing the file of that name."""
    sync(staged)
    staged.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Make a folder and its parents; sync the parent of each new folder."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def try_lock(lock: IO[Any] | int, *, is_shared: bool = False) -> bool:
    """Try to lock an open file or folder without waiting; return whether it succeeded.

    The lock ends when the file is closed, at the latest with the process.
    """
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(lock: IO[Any]) -> None:
    """Lock an open file, after all who hold its lock now."""
    fcntl.flock(lock, fcntl.LOCK_EX)


_locked: Final[dict[tuple[int, str], tuple[Path, int]]] = {}
"""Folder and descriptor, by process (a fork inherits its parent's) and by temporary folder."""
_making: Final = threading.Lock()


def own_folder() -> Path:
    """Return the folder of this process, which no other user can open.

    It is removed when the process ends; if the process is killed, a later one removes it. The
    first call removes the folders that killed processes left.
    """
    parent = tempfile.gettempdir()
    key = (os.getpid(), parent)
    with _making:
        if key not in _locked or not _locked[key][0].exists():
            for leftover in find_leftovers():
                shutil.rmtree(leftover, ignore_errors=True)
            _locked[key] = _make_locked(parent)
            atexit.register(remove_own_folders)
        return _locked[key][0]


def remove_own_folders() -> None:
    """Remove the temporary files of this process, even while they are written to."""
    for key, (folder, descriptor) in list(_locked.items()):
        if key[0] == os.getpid():
            ended = folder.with_name(folder.name + _ENDED)
            with suppress(OSError):
                # After the rename, no new file can be made in it.
                folder.rename(ended)
            shutil.rmtree(ended, ignore_errors=True)
            os.close(descriptor)
            del _locked[key]


def find_leftovers() -> Iterator[Path]:
    """Yield the folders that dead processes of this user left, each locked until the next."""
    for folder in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{_PREFIX}*")):
        try:
            descriptor = _opened(folder)
        except OSError:
            continue  # Not a folder, or just removed.
        try:
            if os.fstat(descriptor).st_uid == os.getuid() and _is_free(descriptor):
                yield folder
        finally:
            os.close(descriptor)


def _make_locked(parent: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
        try:
            descriptor = _opened(folder)
        except FileNotFoundError:
            continue  # Another process removed it as a leftover.
        try:
            is_ours = try_lock(descriptor) and folder.exists()
        except OSError:
            is_ours = True  # This disk can't lock folders, so no process removes it as a leftover.
        if is_ours:
            return folder, descriptor
        os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_free(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError:
        return False  # This disk can't lock folders, so the owner may be alive.
