import atexit
import gc
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["catalog.sandbox.pytest_plugin"]

# The clocks of the tests' sandboxes are set far from the machine's clock. Commands that tests start
# inherit this; tests of the limit set their own.
os.environ.setdefault("ALMANAC_MAX_CLOCK_SKEW_DAYS", "36500")
# Tests run days of exports in seconds.
os.environ.setdefault("ALMANAC_EXPORT_INTERVAL_S", "0")

# A deadline, or the check of slow examples, would fail a test for the load of the machine.
settings.register_profile(
    "without time", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without time")

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

TOGETHER: Final = {
    "tests/crashes/test_kills.py": "prepared",
    "tests/crashes/test_damage.py": "prepared",
    "tests/crashes/test_two_at_once.py": "prepared",
    "tests/almanac/cookbook/": "cookbook",
    "tests/pipeline/homes/test_damaged_files.py": "every kind",
    "tests/pipeline/homes/test_damaged_stamp.py": "every kind",
    "tests/pipeline/homes/test_odd_homes.py": "every kind",
    "tests/hostile/": "hostile",
    "tests/application/mirror/test_as_of.py": "filled home",
    "tests/application/mirror/test_past_answers.py": "filled home",
    "tests/application/mirror/test_mirror_schemathesis.py": "filled home",
}
"""Tests that share homes that take long to make: tests of one name run in one worker."""


LONGEST_FIRST: Final = (
    *("tests/crashes/test_killed_commands.py", "tests/history/test_truth.py"),
    *("tests/crashes/", "tests/hostile/", "tests/history/test_rebuilds.py"),
    *("tests/hostile_service/", "tests/history/test_clocks_apart.py", "tests/history/"),
    *("tests/warehouse/answers/test_statistics_of_a_history.py", "tests/warehouse/normalise/"),
    *("tests/warehouse/answers/test_upcoming_truth.py", "tests/sandbox/", "tests/conformance/"),
    *("tests/warehouse/answers/test_sandbox_answers.py", "tests/pipeline/automation/"),
    *("tests/pipeline/homes/", "tests/pipeline/secrecy/test_canary.py", "tests/pipeline/test_"),
    *("tests/warehouse/test_readers.py", "tests/application/cli/test_run.py"),
)
"""Starts of paths: several workers begin with the files that take longest, so that none of these
is still running when the others have ended. `make test` names two files before all of them."""
COLLECTED_AFTER: Final = (50_000, 20, 50)
"""Objects, then collections of the younger generation, before Python's collector runs. A process
of tests holds millions of objects; walking them as often as by default takes a tenth of its time.
"""


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    if hasattr(config, "workerinput"):
        # A worker has reported everything by then. A normal exit would only print complaints of
        # DuckDB about objects that failed tests, caches and fixtures still hold.
        atexit.register(os._exit, 0)
    else:
        config.pluginmanager.register(_Failures(config))
    # Unless TMPDIR is set. SQLite alone syncs a thousand times for each run of a job.
    if "TMPDIR" not in os.environ and _serves(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class _Failures:
    """Prints a failure when it happens, so that a run which is ended has said what failed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext}")


def pytest_unconfigure() -> None:
    # Hypothesis leaves a callback that keeps modules alive at the interpreter's end; DuckDB's
    # binding then prints a complaint for each of its functions and types.
    for callback in [*gc.callbacks]:
        if str(getattr(callback, "__module__", "")).startswith("hypothesis."):
            gc.callbacks.remove(callback)


def _serves(folder: Path) -> bool:
    """Whether a folder has room for the homes of tests and may run their programs."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= MEMORY_BYTES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        named = [argument for argument in config.args if argument.endswith(".py")]
        order = (*named, *LONGEST_FIRST)
        items.sort(key=lambda item: _place(item.nodeid, order))


def pytest_collection_finish() -> None:
    # The tests and what they import stay until the end: no collection need walk them.
    gc.freeze()


def _place(nodeid: str, order: tuple[str, ...]) -> int:
    """Return the place of the first start of a path that a test has; the others are last."""
    found = (place for place, start in enumerate(order) if nodeid.startswith(start))
    return next(found, len(order))


class _ByFileOrFolder(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        found = (name for start, name in TOGETHER.items() if nodeid.startswith(start))
        return next(found, super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _ByFileOrFolder(config, log) if config.option.dist == "loadfile" else None
