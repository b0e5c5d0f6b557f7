"""Which process, on which machine: enough to know one again, and to take no other for it.

Ids of processes are given out anew, and are other processes' in another container. Belongs here:
what tells processes apart. Does not: what they hold (turns).
"""

import socket
from functools import cache
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_STARTED: Final = 19
"""The place of the start time in /proc/<pid>/stat, counted after the program's name."""


@cache
def host() -> str:
    return socket.gethostname()


def machine() -> str:
    """Return what no other boot, and no other container, has; the host alone where that is all."""
    boot = _text(_PROC / "sys/kernel/random/boot_id")
    try:
        namespace = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return " ".join(part for part in (host(), boot, namespace) if part)


def start_of(pid: int) -> str:
    """Return when a process of this machine began, in the system's own units; else nothing."""
    # The name may hold blanks and brackets.
    words = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return words[_STARTED] if len(words) > _STARTED else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
