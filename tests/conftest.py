import atexit
import gc
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["catalog.sandbox.pytest_plugin"]

# The clocks of the tests' sandboxes are set far from the machine's clock. Commands that tests start
# inherit this; tests of the limit set their own.
os.environ.setdefault("ALMANAC_MAX_CLOCK_SKEW_DAYS", "36500")
# Tests run days of exports in seconds.
os.environ.setdefault("ALMANAC_EXPORT_INTERVAL_S", "0")

# A deadline, or the check of slow examples, would fail a test for the load of the machine.
for profile, examples in (("default", 10), ("long", 500)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("default")

# The tests start hundreds of processes; without bytecode each would compile the whole product.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under nohup, the commands that tests start would ignore a closed terminal as well.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# In the background of a script, Ctrl-C would be ignored, also by the tests of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MEMORY: Final = Path("/dev/shm")
"""A folder in memory: no test waits for a disk, and a kill leaves the same files as on a disk."""
MEMORY_BYTES: Final = 4 << 30
"""Free bytes that it needs. The homes of a test that passed are removed when it ends."""

COLLECTED_AFTER: Final = (50_000, 20, 50)
"""Objects, then collections of the younger generation, before Python's collector runs. A process
of tests holds millions of objects; walking them as often as by default takes a tenth of its time.
"""


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    config.pluginmanager.register(_Run(config))
    # Unless TMPDIR is set. SQLite alone syncs a thousand times for each run of a job.
    if "TMPDIR" not in os.environ and _serves(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class _Run:
    """Prints a failure when it happens, so that a run which is ended has said what failed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._code = 0
        # Runs after the handlers that are registered later. A normal exit would only print
        # complaints of DuckDB's binding about objects that caches and fixtures still hold.
        atexit.register(self._exit)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not hasattr(self._config, "workerinput"):
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext}")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._code = int(exitstatus)

    def _exit(self) -> None:
        sys.stdout.flush()
        os._exit(self._code)


def _serves(folder: Path) -> bool:
    """Whether a folder has room for the homes of tests and may run their programs."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= MEMORY_BYTES


def pytest_collection_finish() -> None:
    # The tests and what they import stay until the end: no collection need walk them.
    gc.freeze()
