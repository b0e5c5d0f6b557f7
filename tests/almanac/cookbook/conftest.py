from pathlib import Path

import pytest

from tests.almanac.cookbook.home import make_home
from tests.history.stories.disk import without_syncs


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the cookbook, made once for all tests of this folder."""
    with without_syncs():
        return make_home(tmp_path_factory.mktemp("cookbook") / "home").root
