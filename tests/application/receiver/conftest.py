"""A receiver that is served on loopback, one for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.application.receiver.served import Served, served
from tests.hangs import HANGS_AFTER_S
from tests.resources.inbox.deliveries import Clock
from warehouse.home import Home


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("receiver") / "home", wait_s=0)
    home.claim("sandbox:1")
    with served(home, Clock(), body_within_s=HANGS_AFTER_S) as serving:
        yield serving


@pytest.fixture
def receiver(shared: Served) -> Served:
    """The receiver of the file, with its clock and its secret as at the start."""
    shared.reset()
    return shared
