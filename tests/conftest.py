import os
import sys
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

TOGETHER: Final = ("tests/crashes/", "tests/hostile/")
"""Folders whose tests share homes that take long to make: each is one worker's."""


class _ByFileOrFolder(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        found = (folder for folder in TOGETHER if nodeid.startswith(folder))
        return next(found, super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _ByFileOrFolder(config, log) if config.option.dist == "loadfile" else None
