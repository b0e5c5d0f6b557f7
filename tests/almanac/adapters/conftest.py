"""The database of the event that was moved, which most tests of adapters read."""

from collections.abc import Iterator

import pytest

from almanac.database import Database
from tests.almanac.adapters.stories import LATER, opened, publish_moved


@pytest.fixture(scope="package")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = publish_moved(tmp_path_factory.mktemp("home") / "warehouse.duckdb")
    with opened(path, now=LATER) as db:
        yield db
