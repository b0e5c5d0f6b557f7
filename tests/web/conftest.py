"""The homes that tests of the web share."""

from tests.mirror.conftest import filled_home

__all__ = ["filled_home"]
