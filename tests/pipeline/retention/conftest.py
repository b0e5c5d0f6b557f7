"""A home with the history of `history.py`, made once and copied for each test."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.retention.history import Shown, home_at, make_history, opened
from warehouse.home import Home


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "home"
    with opened(home_at(root)) as instance:
        make_history(instance)
    return root


@pytest.fixture(scope="package")
def shown(made: Path) -> Shown:
    """What is shown of the home before a prune."""
    with opened(Home(made)) as instance:
        return Shown.of(instance)


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Home:
    shutil.copytree(made, tmp_path / "home")
    return Home(tmp_path / "home")
