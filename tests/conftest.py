import atexit
import gc
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["catalog.sandbox.pytest_plugin"]

# The sandboxes of the tests stand where they are set, far from the machine's clock. For the
# commands that tests start too; tests of what is believed say what they allow.
os.environ.setdefault("ALMANAC_MAX_CLOCK_SKEW_DAYS", "36500")

# The tests start some hundred processes: without bytecode each compiles the whole product anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under nohup, the commands that tests start would ignore a closed terminal as well.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

MEMORY: Final = Path("/dev/shm")
"""Where files are never waited for; a kill leaves of them what it leaves on a disk."""
MEMORY_BYTES: Final = 4 << 30
"""What has to be free there. The homes of a test that passed are removed when it ends."""

TOGETHER: Final = {
    "tests/crashes/test_kills.py": "prepared",
    "tests/crashes/test_damage.py": "prepared",
    "tests/crashes/test_two_at_once.py": "prepared",
    "tests/hostile/": "hostile",
}
"""Tests that share homes that take long to make: those of a name are one worker's."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # A worker has said all by then. Taken apart, it would only find what failed tests, caches
        # and fixtures still hold of DuckDB, and complain of it behind the result.
        atexit.register(os._exit, 0)
    # Not where somebody says where: SQLite alone syncs a thousand times for each run of a job.
    if "TMPDIR" not in os.environ and _serves(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_unconfigure() -> None:
    # Hypothesis leaves one, which holds modules past the interpreter's end: DuckDB's binding then
    # complains of each of its functions and types.
    for callback in [*gc.callbacks]:
        if str(getattr(callback, "__module__", "")).startswith("hypothesis."):
            gc.callbacks.remove(callback)


def _serves(folder: Path) -> bool:
    """Whether a folder of this machine takes the homes of tests, and runs their programs."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= MEMORY_BYTES


class _ByFileOrFolder(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        found = (name for start, name in TOGETHER.items() if nodeid.startswith(start))
        return next(found, super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _ByFileOrFolder(config, log) if config.option.dist == "loadfile" else None
