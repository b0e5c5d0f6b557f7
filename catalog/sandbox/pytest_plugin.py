"""Fixtures for tests against the sandbox, also those of users.

    # conftest.py
    pytest_plugins = ["catalog.sandbox.pytest_plugin"]

    def test_reads_events(almanac_sandbox):
        key = almanac_sandbox.new_key("elite")
        httpx.get(almanac_sandbox.base_url + "/v2/events", headers={"x-api-key": key})

Request another time with the header `Sandbox-Now` and faults with `Sandbox-Faults`: parallel
tests can then share the one sandbox of the session.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox

STANDS_AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def almanac_sandbox_options() -> dict[str, Any]:
    """Override it to pass other arguments to `Sandbox`. No test waits between two exports."""
    return {"seed": 1, "now": STANDS_AT, "export_interval_s": 0}


@pytest.fixture(scope="session")
def almanac_sandbox(almanac_sandbox_options: dict[str, Any]) -> Iterator[Sandbox]:
    """A running sandbox on a free port, one for the session."""
    with Sandbox(**almanac_sandbox_options) as sandbox:
        yield sandbox
