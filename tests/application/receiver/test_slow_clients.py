"""Slow and half-open connections: ordinary deliveries are accepted beside them, and they end."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from application.receiver import BODY_MAX
from catalog.contract.constants import SIGNATURE_HEADER
from catalog.server.body_limit import BODIES_MAX
from tests.application.receiver.served import Served, answer_on, request, served, signature
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.inbox.deliveries import START, Clock, delivery
from warehouse.home import Home

BODY_WITHIN_S = 0.5
ORDINARY = 100
SLOW = 500
WHOLE = request(delivery(0), signature(delivery(0), at=START))
HEAD = WHOLE.index(b"\r\n\r\n") + 4
STATES = {
    "connected": 0,
    "in the first line": 9,
    "in the headers": HEAD - 30,
    "in the body": HEAD + 9,
}
"""How many bytes a slow client has sent."""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Served]:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    with served(home, Clock(), body_within_s=BODY_WITHIN_S) as serving:
        yield serving


def test_a_body_that_stops_is_408_and_one_that_comes_a_byte_at_a_time_too(
    receiver: Served,
) -> None:
    for pause_s in (BODY_WITHIN_S / 5, HANGS_AFTER_S):
        with socket.create_connection(("127.0.0.1", receiver.port)) as client:
            client.settimeout(pause_s)
            client.sendall(WHOLE[:HEAD])
            sent = HEAD
            while not is_answered(client):
                sent += 1
                assert sent < len(WHOLE)
                client.sendall(WHOLE[sent - 1 : sent])
            client.settimeout(None)
            assert answer_on(client).status == 408
    assert receiver.count() == 0
    # The short limit may refuse more requests on a busy machine.
    wait_for(lambda: receiver.send(WHOLE).status == 204)


def is_answered(client: socket.socket) -> bool:
    """Wait for an answer as long as the client's timeout."""
    try:
        client.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    return True


def test_slow_bodies_keep_no_delivery_out(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    large = request(b"x" * BODY_MAX, [(SIGNATURE_HEADER, "0" * 64)])[:-1]
    with served(home, Clock()) as receiver, ExitStack() as opened:
        for _ in range(BODIES_MAX + 16):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            client.sendall(large)
        statuses = [receiver.post(delivery(number)).status for number in range(1, ORDINARY + 1)]
        assert statuses == [204] * ORDINARY
        assert receiver.count() == ORDINARY


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_a_connection_that_sends_no_more_is_closed(receiver: Served, state: str) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port)) as client:
        client.sendall(WHOLE[: STATES[state]])
        assert answer_on(client).status in (0, 408)
