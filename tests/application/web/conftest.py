from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec

import httpx
import pytest

import almanac
from almanac.database import Database
from application.web.site import WebSite
from catalog.sandbox.sandbox import Sandbox
from tests.application.mirror.filled_home import NOW, STARTS, mirroring
from tests.application.mirror.replays import replaying
from tests.hangs import HANGS_AFTER_S
from warehouse.home import Home

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


@pytest.fixture(scope="module")
def replay(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return a client of a replay, paused a day after its start."""
    starts = STARTS + timedelta(days=1)
    with replaying(filled_home, tmp_path_factory.mktemp("r"), starts, site=WebSite) as (_, client):
        yield client


@pytest.fixture(scope="module")
def sandbox(almanac_sandbox: Sandbox) -> Iterator[httpx.Client]:
    """Return a client of the sandbox, with a key that no limit stops."""
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with httpx.Client(
        base_url=almanac_sandbox.base_url,
        headers={"x-api-key": key},
        verify=False,
        timeout=HANGS_AFTER_S,
    ) as client:
        yield client


@pytest.fixture(scope="module")
def clients(
    client: httpx.Client, replay: httpx.Client, sandbox: httpx.Client
) -> dict[str, httpx.Client]:
    """Return a client of each server."""
    return {"mirror": client, "replay": replay, "sandbox": sandbox}
