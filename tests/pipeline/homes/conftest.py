"""A home with a file of every kind, made once and copied: by the tests of damage and odd names."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crashes.rotting import make_home
from warehouse.home import Home

CopyTo = Callable[[Path], Home]


@pytest.fixture(scope="package")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> CopyTo:
    """Copies the home to a path that is free."""
    made = make_home(tmp_path_factory.mktemp("every_kind") / "home").root

    def copy_to(root: Path) -> Home:
        shutil.copytree(made, root)
        return Home(root)

    return copy_to
