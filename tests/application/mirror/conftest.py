import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.application.mirror.filled_home import DAYS, fill
from tests.history.stories.disk import without_syncs
from warehouse.home import Home


@pytest.fixture(scope="session")
def filled_home(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home of four days. It is only for reading: a test that publishes copies it."""
    with without_syncs():
        home = Home(tmp_path_factory.mktemp("filled"))
        fill(almanac_sandbox, home, days=DAYS)
    return home
