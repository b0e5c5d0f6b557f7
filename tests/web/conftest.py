"""The homes that tests of the web share."""

from importlib.util import find_spec

from tests.mirror.conftest import filled_home

__all__ = ["filled_home"]

collect_ignore = [] if find_spec("playwright") else ["browser"]
"""Only `make test-browser` installs Playwright."""
