"""The command line in this process, as for the tests of the pipeline, and a home of four days."""

import fcntl
import os

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.application.mirror.filled_home import DAYS, fill
from tests.history.stories.disk import without_syncs
from tests.pipeline.conftest import almanac, private_files
from warehouse.home import Home

__all__ = ["almanac", "filled_home", "private_files"]


@pytest.fixture(scope="session")
def filled_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home that all workers share. It is only for reading.

    The first worker that needs it makes it, and the others wait.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    home, made = Home(folder / "filled"), folder / "filled.made"
    with (folder / "filled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            sandbox: Sandbox = request.getfixturevalue("almanac_sandbox")
            with without_syncs():
                fill(sandbox, home, days=DAYS)
            made.touch()
    return home
