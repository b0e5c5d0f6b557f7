from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.warehouse.normalise.catalog_bodies import BatchReader


@pytest.fixture(scope="session")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture
def batches(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> BatchReader:
    return BatchReader(tmp_path, connection)
