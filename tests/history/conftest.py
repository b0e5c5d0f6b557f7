import os
from collections.abc import Iterator

import pytest

from tests.history.scenario import DEFAULT, LARGE
from tests.history.telling import Told, tell


@pytest.fixture(scope="session", autouse=True)
def disk_that_never_loses() -> Iterator[None]:
    """What a power cut would leave is not tried here, and waiting for it is most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Thirteen days of a small world."""
    return tell(DEFAULT, tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="session")
def told_at_large(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Thirteen days of a larger world, looked at more often."""
    return tell(LARGE, tmp_path_factory.mktemp("told-at-large"))
