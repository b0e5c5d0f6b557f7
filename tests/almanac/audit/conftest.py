"""The published file of `watched`, for every test that only reads it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from almanac.database import Database
from tests.almanac.audit.watched import open_watched


@pytest.fixture(scope="session")
def watched_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("watched") / "warehouse.duckdb"
    open_watched(path).close()
    return path


@pytest.fixture(scope="session")
def db(watched_file: Path) -> Iterator[Database]:
    with open_watched(watched_file) as database:
        yield database
