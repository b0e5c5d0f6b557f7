"""Permissions of the files that a process makes: readable by their owner alone, or by their group.

Belongs here: the umask of the process, and finding and closing files that others can read. The
umask applies to all files of the process, including those that DuckDB and SQLite write.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OWNER: Final = 0o077
_GROUP: Final = 0o027
_WRITE: Final = 0o222
_WRITABLE_BY_ALL: Final = 0o002
_WRITABLE_BY_GROUP: Final = 0o020
_ROOT: Final = 0
_usual: int | None = None


def keep_private(*, group_reads: bool = False) -> None:
    """Make new files of this process private: files 0600, folders 0700.

    With `group_reads` they are 0640 and 0750. Programs that it starts inherit this.
    """
    global _usual
    before = os.umask(_closed(group_reads=group_reads))
    _usual = before if _usual is None else _usual


@contextmanager
def usual_modes() -> Iterator[None]:
    """Use the user's own umask, for files that are written where the user says."""
    if _usual is None:
        yield
        return
    private = os.umask(_usual)
    try:
        yield
    finally:
        os.umask(private)


def close_for_writing(path: Path) -> None:
    """Remove the write permission of a file for everybody."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_WRITE)


def readable_by_others(path: Path, *, group_reads: bool = False) -> bool:
    """Whether others have more permissions on a file or folder than `keep_private` gives.

    A file that root gives this user, as systemd gives a credential, has the group root: its mode
    then shows the mask of an access list, not that of a group.
    """
    status = path.stat()
    is_given = status.st_uid == status.st_gid == _ROOT != os.getuid()
    return bool(stat.S_IMODE(status.st_mode) & _closed(group_reads=group_reads or is_given))


def open_to_others(roots: Iterable[Path], *, group_reads: bool = False) -> list[Path]:
    """Return the files and folders in some folders, and the folders, that are not private."""
    closed, found = _closed(group_reads=group_reads), set[Path]()
    for root in roots:
        for parent, folders, names in os.walk(root):
            for path in (Path(parent), *(Path(parent) / name for name in (*folders, *names))):
                try:
                    mode = path.lstat().st_mode
                except FileNotFoundError:
                    continue  # A running process removed it.
                if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & closed:
                    found.add(path)
    return sorted(found)


def close_to_others(paths: Iterable[Path], *, group_reads: bool = False) -> int:
    """Make files and folders private; return how many.

    Raises:
        OSError: another user owns one of them.
    """
    count = 0
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode & ~_closed(group_reads=group_reads))
        except FileNotFoundError:
            continue
        count += 1
    return count


def _closed(*, group_reads: bool) -> int:
    return _GROUP if group_reads else _OWNER


def others_may_write(status: os.stat_result) -> bool:
    """Whether anybody but this user and root may write to a file."""
    if status.st_uid not in (os.getuid(), _ROOT) or status.st_mode & _WRITABLE_BY_ALL:
        return True
    return bool(status.st_mode & _WRITABLE_BY_GROUP) and not _is_own_group(status.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether this user is the only member of a group, which many systems make for each user."""
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
