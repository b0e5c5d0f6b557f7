"""The temporary files of a process: in a folder of its own that is removed when it ends.

    <temporary folder>/almanac-process-…/

The process holds an OS lock on its folder until it ends. A folder whose lock is free was left by a
killed process; the next process of the same user removes it.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "almanac-process-"
_ENDED: Final = "-ended"


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
            is_ours = _try_lock(descriptor) and folder.exists()
        except OSError:
            is_ours = True  # This disk can't lock folders, so no process removes it as a leftover.
        if is_ours:
            return folder, descriptor
        os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_free(descriptor: int) -> bool:
    try:
        return _try_lock(descriptor)
    except OSError:
        return False  # This disk can't lock folders, so the owner may be alive.


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
