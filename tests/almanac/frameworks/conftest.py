"""The files of `examples/frameworks` as modules, and the database of the event that was moved."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from almanac.database import Database
from tests.almanac.frameworks.stories import LATER, opened, publish_moved

FOLDER = Path(__file__).parents[3] / "examples" / "frameworks"
FILES = (
    *("backtrader_feed", "bars", "freqtrade_features", "nautilus_updates", "vectorbt_signals"),
    "zipline_loaders",
)


@pytest.fixture(scope="package")
def examples() -> Iterator[SimpleNamespace]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield SimpleNamespace(**{name: import_module(name) for name in FILES})
    finally:
        sys.path.remove(str(FOLDER))
        for name in FILES:
            del sys.modules[name]


@pytest.fixture(scope="package")
def moved_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_moved(tmp_path_factory.mktemp("home") / "warehouse.duckdb")


@pytest.fixture(scope="package")
def moved(moved_file: Path) -> Iterator[Database]:
    with opened(moved_file, now=LATER) as db:
        yield db
