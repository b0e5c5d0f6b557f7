"""Who may read the files that a process makes: their owner alone, or their group as well.

Belongs here: the process's mask, and finding and mending what others can read. All that a
process makes follows the mask, also what DuckDB and SQLite write by themselves.
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
    """Let all that this process makes be its owner's: files 0600, folders 0700.

    With `group_reads` they are 0640 and 0750. Programs that it starts do the same.
    """
    global _usual
    before = os.umask(_closed(group_reads=group_reads))
    _usual = before if _usual is None else _usual


@contextmanager
def usual_modes() -> Iterator[None]:
    """Make files as the user's own mask has it: what goes to a place that the user names."""
    if _usual is None:
        yield
        return
    private = os.umask(_usual)
    try:
        yield
    finally:
        os.umask(private)


def close_for_writing(path: Path) -> None:
    """Take the right to write to a file away, from everybody."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_WRITE)


def readable_by_others(path: Path, *, group_reads: bool = False) -> bool:
    """Whether anybody but the owner has any right to a file or folder, or to write to it."""
    return bool(stat.S_IMODE(path.stat().st_mode) & _closed(group_reads=group_reads))


def open_to_others(roots: Iterable[Path], *, group_reads: bool = False) -> list[Path]:
    """Return the files and folders below some folders, and these, that are not private."""
    closed, found = _closed(group_reads=group_reads), set[Path]()
    for root in roots:
        for parent, folders, names in os.walk(root):
            for path in (Path(parent), *(Path(parent) / name for name in (*folders, *names))):
                try:
                    mode = path.lstat().st_mode
                except FileNotFoundError:
                    continue  # A process that runs took it away.
                if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & closed:
                    found.add(path)
    return sorted(found)


def close_to_others(paths: Iterable[Path], *, group_reads: bool = False) -> int:
    """Make them private; return how many.

    Raises:
        OSError: one of them is somebody else's.
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
    """Whether a group has this user alone: where files are group-writable, systems make one."""
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
