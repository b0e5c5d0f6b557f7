"""The homes and sites that tests of the web share."""

from collections.abc import Iterator
from importlib.util import find_spec

import httpx
import pytest

import almanac
from almanac.database import Database
from pipeline.web.site import WebSite
from tests.mirror.conftest import filled_home
from tests.mirror.filled_home import NOW, mirroring
from warehouse.home import Home

__all__ = ["filled_home"]

collect_ignore = [] if find_spec("playwright") else ["browser"]
"""Only `make test-browser` installs Playwright."""


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return a client of a running mirror of the shared home, with its pages."""
    with mirroring(filled_home, tmp_path_factory.mktemp("m"), site=WebSite) as (_, client):
        yield client


@pytest.fixture(scope="module")
def database(filled_home: Home) -> Iterator[Database]:
    """Return the shared home, opened for plain SQL."""
    with almanac.open(filled_home.root, clock=lambda: NOW) as database:
        yield database
