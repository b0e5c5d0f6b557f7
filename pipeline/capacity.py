"""The capacity of this process: memory and cores of the machine, or of its container if that is
less.

Linux limits a container by the cgroups of its processes: version 2, or version 1 on older hosts.
Belongs here: reading the limits. Does not: how they are shared out (machine).
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_ALL_GROUPS: Final = "sys/fs/cgroup"
_OWN_GROUPS: Final = "proc/self/cgroup"
_UNLIMITED_BYTES: Final = 1 << 60
"""Version 1 has a number of this size for no limit."""


def memory_bytes(root: Path = _ROOT) -> int:
    """Return the memory that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    names = {"": "memory.max", "memory": "memory.limit_in_bytes"}
    for folder, controller in _groups(root, names):
        limit = _number(_text(folder / names[controller]))
        if limit is not None and limit < _UNLIMITED_BYTES:
            limits.append(limit)
    return min(limits)


def cores(root: Path = _ROOT) -> int:
    """Return the number of cores that this process may use, at least one."""
    # Not of every system, and fewer than the machine has if it was started with `taskset`.
    affinity = getattr(os, "sched_getaffinity", None)
    limits = [float(os.cpu_count() or 1) if affinity is None else float(len(affinity(0)))]
    for folder, controller in _groups(root, {"": "cpu.max", "cpu": "cpu.cfs_quota_us"}):
        words = _text(folder / "cpu.max").split()
        if controller:
            words = [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        quota, period = map(_number, (*words, "", "")[:2])
        if quota is not None and quota > 0 and period:
            limits.append(quota / period)
    return max(1, math.ceil(min(limits)))


def _groups(root: Path, names: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the folders of the cgroups of this process and of those above it, with the controller.

    The controller is empty for version 2. A folder without the file of `names` is left out.
    """
    for line in _text(root / _OWN_GROUPS).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for controller in names.keys() & set(controllers.split(",")):
            top = root / _ALL_GROUPS / controller
            own = top / path.strip("/")
            # In a container the path may be that of the host, which is not there.
            for folder in (own, *own.parents):
                if (folder / names[controller]).is_file():
                    yield folder, controller
                if folder == top:
                    break


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Return a limit; None for none, as in `max`."""
    return int(text) if text.lstrip("-").isdigit() else None
