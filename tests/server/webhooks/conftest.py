from collections.abc import Iterator

import pytest

from tests.server.webhooks.receiver import Receiver


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
