"""The spare file: the file published before, kept for the next publication to change.

    .spare-warehouse.duckdb

A publication links the published file to this name before it replaces it. The next one renames the
spare file to its own unfinished name, applies the differences to it, and renames it into place, so
nothing is copied. It renames before it writes: a killed publication leaves an unfinished file,
which is removed, and never a changed spare file.

A spare file is changed only if nobody has it: it has one name, and the kernel grants a write lease,
which it refuses while any process has the file open. Leases need Linux and a local file system;
elsewhere there is no spare file, and each publication copies the published file.
"""

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from warehouse.files.storage import sync

_MOUNTS: Final = Path("/proc/self/mounts")
_LEASING: Final = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs"})
"""File systems whose files no other machine can open."""


def spare_path(warehouse: Path) -> Path:
    return warehouse.with_name(f".spare-{warehouse.name}")


def take_spare(warehouse: Path, staged: Path) -> bool:
    """Rename the spare file to an unfinished name, writable; False if there is none or it is held.

    A spare file that another process holds loses its name.
    """
    if not spare_path(warehouse).is_file():
        return False
    spare_path(warehouse).rename(staged)
    sync(staged.parent)  # After a power failure, a changed file must not have the spare's name.
    if not _is_free(staged):
        staged.unlink()
        return False
    staged.chmod(staged.stat().st_mode | stat.S_IWUSR)
    return True


def keep_spare(warehouse: Path) -> None:
    """Link the published file, which is about to be replaced, to the name of the spare file."""
    drop_spare(warehouse)
    if _grants_leases(warehouse.parent):
        with suppress(OSError):  # Not every file system has hard links.
            os.link(warehouse, spare_path(warehouse))


def drop_spare(warehouse: Path) -> None:
    spare_path(warehouse).unlink(missing_ok=True)


def _is_free(path: Path) -> bool:
    """Whether a file has no other name and no process has it open.

    A reader opens its own link and then removes it, so the names are counted first.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_nlink != 1 or not _grants_leases(path.parent):
            return False
        with _without_lease_signal():
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextmanager
def _without_lease_signal() -> Iterator[None]:
    """Discard the signal that tells the holder of a lease of another opener; it would end us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    try:
        yield
    finally:
        signal.sigtimedwait({signal.SIGIO}, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _grants_leases(folder: Path) -> bool:
    """Whether the kernel knows every process that opens a file of a folder."""
    if not hasattr(fcntl, "F_SETLEASE") or not _MOUNTS.exists():
        return False
    folder = folder.resolve()
    mount = next(path for path in (folder, *folder.parents) if path.is_mount())
    name = os.fsencode(mount)
    for found, replacement in ((b"\\", b"\\134"), (b" ", b"\\040"), (b"\t", b"\\011")):
        name = name.replace(found, replacement)
    lines = [line.split() for line in _MOUNTS.read_bytes().splitlines()]
    kinds = [kind.decode() for _, point, kind, *_ in lines if point == name]
    return bool(kinds) and kinds[-1] in _LEASING
