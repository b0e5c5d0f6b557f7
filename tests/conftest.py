"""What all tests share: the sandbox's plugin, and which tests go to one worker together."""

import pytest

pytest_plugins = ["catalog.sandbox.pytest_plugin"]

DEAR = ("merged", "told", "seen", "prepared")
"""Fixtures that take a worker many seconds; the tests that need one share it in one worker."""


@pytest.hookimpl(tryfirst=True)  # Before xdist names the groups in the ids.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needed = getattr(item, "fixturenames", ())
        if any(name in needed for name in DEAR):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("/")[1]))
