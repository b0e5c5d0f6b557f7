from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from tests.resources.fakes import FakeTime
from tests.unlimited import Unlimited

MakeClient = Callable[..., CatalogClient]


@pytest.fixture(scope="session")
def unlimited_key(almanac_sandbox: Sandbox) -> str:
    return almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def make_client(
    almanac_sandbox: Sandbox, unlimited_key: str, fake_time: FakeTime
) -> Iterator[MakeClient]:
    """Creates clients of the sandbox that neither wait nor are limited; `key` and all other
    options may be given."""
    with ExitStack() as clients:

        def make(key: str = unlimited_key, **options: Any) -> CatalogClient:
            options.setdefault("limiter", Unlimited())
            options.setdefault("timing", fake_time.timing())
            return clients.enter_context(CatalogClient(almanac_sandbox.base_url, key, **options))

        yield make
