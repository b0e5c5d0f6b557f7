"""What a process writes among the temporary files: in one folder of its own, gone with it.

    <temporary folder>/almanac-process-…/

The process holds an OS lock on its folder for as long as it lives. A folder whose lock is free was
left by a process that was killed, and the next process of the same user removes it. Belongs here:
making and removing that folder. Does not: what is written in it.
"""

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warehouse.files.locks import try_lock

_PREFIX: Final = "almanac-process-"
_ENDED: Final = "-ended"


@dataclass(frozen=True, slots=True)
class _LockedFolder:
    folder: Path
    descriptor: int


_locked: Final[dict[tuple[int, str], _LockedFolder]] = {}
"""By process, since a fork inherits what its parent holds, and by temporary folder."""
_making: Final = threading.Lock()


def own_folder() -> Path:
    """Return the folder of this process, which no other user can open.

    It is removed when the process ends, and a later process removes it where this one is killed.
    The first call removes what killed processes left.

    Raises:
        OSError: there is no room for it, or no right to make it.
    """
    parent = tempfile.gettempdir()
    key = (os.getpid(), parent)
    with _making:
        locked = _locked.get(key)
        if locked is None or not locked.folder.exists():
            for leftover in leftovers():
                shutil.rmtree(leftover, ignore_errors=True)
            locked = _locked[key] = _make_locked(parent)
            atexit.register(remove_own_folders)
        return locked.folder


def remove_own_folders() -> None:
    """Remove what this process has among the temporary files, even while it is written to."""
    for key, locked in list(_locked.items()):
        if key[0] == os.getpid():
            ended = locked.folder.with_name(locked.folder.name + _ENDED)
            with suppress(OSError):
                # Under another name nothing new can be made in it meanwhile.
                locked.folder.rename(ended)
            shutil.rmtree(ended, ignore_errors=True)
            os.close(locked.descriptor)
            del _locked[key]


def leftovers() -> Iterator[Path]:
    """Yield the folders that dead processes of this user left; each is locked until the next."""
    for folder in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{_PREFIX}*")):
        try:
            descriptor = _opened(folder)
        except OSError:
            continue  # No folder, or gone just now.
        try:
            if os.fstat(descriptor).st_uid == os.getuid() and _is_free(descriptor):
                yield folder
        finally:
            os.close(descriptor)


def _make_locked(parent: str) -> _LockedFolder:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
        try:
            descriptor = _opened(folder)
        except FileNotFoundError:
            continue  # It was taken for one that was left.
        try:
            is_ours = try_lock(descriptor) and folder.exists()
        except OSError:
            is_ours = True  # This disk locks no folders: nobody can take it for one that was left.
        if is_ours:
            return _LockedFolder(folder, descriptor)
        os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_free(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError:
        return False  # This disk locks no folders: who lives can't be told.
