"""Files of a home, which appear complete or not at all; permissions of all files.

All writes of landing and of the Parquet files pass through `Storage`. Names are relative, with `/`
between parts. New files are readable by their owner alone, or by their group: the umask applies to
all files of the process, including those that DuckDB and SQLite write.
"""

import grp
import os
import pwd
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Final

from almanac.core.files import UNFINISHED, make_folders, put_in_place, sync

_OWNER: Final = 0o077
_GROUP: Final = 0o027
_WRITE: Final = 0o222
_WRITABLE_BY_ALL: Final = 0o002
_WRITABLE_BY_GROUP: Final = 0o020
_ROOT: Final = 0


class Storage:
    """A folder whose files appear complete and survive a power failure."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """Return the path of a file. Raises ValueError: the name would leave the folder."""
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") for part in parts):
            raise ValueError(
                f"{name!r} is not a valid name of a stored file; expected parts joined by '/'"
            )
        return self.root.joinpath(*parts)

    def exists(self, name: str) -> bool:
        return self.path(name).exists()

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a file atomically and durably."""
        with self.writing(name) as unfinished:
            unfinished.write_bytes(data)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary path; at the end, the file written there replaces the named one.

        On an error the named file is unchanged, and the temporary file is removed.
        """
        with self.staging() as staged:
            yield staged
            self.adopt(staged, name)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary path for a file or folder; it is removed at the end unless it was
        adopted."""
        make_folders(self.root)
        staged = self.root / f"{UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}"
        try:
            yield staged
        finally:
            if staged.is_dir():
                shutil.rmtree(staged)
            staged.unlink(missing_ok=True)

    def adopt(self, staged: Path, name: str) -> None:
        """Rename a staged file, replacing the file of that name."""
        target = self.path(name)
        make_folders(target.parent)
        if target.is_dir():  # Made by hand or by a disk repair; a rename can't replace it.
            self.remove_folder(name)
        put_in_place(staged, target)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        path = self.path(name)
        if path.is_dir():
            self.remove_folder(name)
        elif path.exists():
            path.unlink()
            sync(path.parent)

    def remove_folder(self, name: str) -> None:
        """Remove a folder with its files; a crash leaves all of it, or an unfinished folder."""
        path = self.path(name)
        if path.exists():
            doomed = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
            path.rename(doomed)
            sync(path.parent)
            shutil.rmtree(doomed)

    def unfinished(self, *, older_than_s: float = 0.0) -> list[Path]:
        """Return the files and folders that killed writers left, unchanged for `older_than_s`.

        Use 0 seconds only while no other process writes here.
        """
        found: list[Path] = []
        for path in [*self.root.glob(f"{UNFINISHED}*"), *self.root.glob(f"*/{UNFINISHED}*")]:
            with suppress(FileNotFoundError):
                if not older_than_s or time() - path.stat().st_mtime >= older_than_s:
                    found.append(path)
        return found

    def remove_unfinished(self, *, older_than_s: float = 0.0) -> None:
        for path in self.unfinished(older_than_s=older_than_s):
            with suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def names(self, under: str) -> list[str]:
        """Return the names of the finished files in a folder and its subfolders, sorted."""
        folder = self.path(under)
        found = (path for path in folder.rglob("*") if path.is_file()) if folder.exists() else ()
        return sorted(
            path.relative_to(self.root).as_posix()
            for path in found
            if not any(part.startswith(UNFINISHED) for part in path.relative_to(folder).parts)
        )

    def folders(self, under: str) -> list[str]:
        folder = self.path(under)
        try:
            with os.scandir(folder) as entries:
                found = [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith(UNFINISHED))


def link_file(source: Path, target: Path) -> None:
    """Give a finished file another name, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync(target)


def keep_private(*, group_reads: bool = False) -> None:
    """Make new files of this process private: files 0600, folders 0700.

    With `group_reads` they are 0640 and 0750. Programs that it starts inherit this.
    """
    os.umask(_closed(group_reads=group_reads))


def close_for_writing(path: Path) -> None:
    """Remove the write permission of a file for everybody."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_WRITE)


def is_readable_by_others(path: Path, *, group_reads: bool = False) -> bool:
    """Whether others have more permissions on a file or folder than `keep_private` gives.

    A credential from systemd belongs to the group root. Its group mode then shows the mask of an
    access list, not the permissions of the group.
    """
    status = path.stat()
    is_given = status.st_uid == status.st_gid == _ROOT != os.getuid()
    return bool(stat.S_IMODE(status.st_mode) & _closed(group_reads=group_reads or is_given))


def find_open_files(roots: Iterable[Path], *, group_reads: bool = False) -> list[Path]:
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


def make_private(paths: Iterable[Path], *, group_reads: bool = False) -> int:
    """Make files and folders private; return how many."""
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


def is_writable_by_others(status: os.stat_result) -> bool:
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
