"""Slow and half-open connections: ordinary deliveries are accepted beside them, and they end."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from catalog.contract.constants import SIGNATURE_HEADER
from pipeline.receiver.app import BODY_MAX, BUFFERED_MAX
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.receiver.served import Headers, Served, answer_on, request, served, signature
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


def test_beside_500_slow_connections_every_ordinary_delivery_is_accepted(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    # Ordinary deliveries have as much time as slow ones.
    with served(home, Clock(), body_within_s=HANGS_AFTER_S) as receiver, ExitStack() as opened:
        slow = []
        for number in range(SLOW):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            client.sendall(WHOLE[: list(STATES.values())[number % len(STATES)]])
            slow.append(client)
        statuses = [receiver.post(delivery(number)).status for number in range(1, ORDINARY + 1)]
        assert statuses == [204] * ORDINARY
        assert receiver.count() == ORDINARY


@pytest.mark.parametrize(
    "headers",
    [
        (),
        [(SIGNATURE_HEADER, "0" * 64)],
        [(SIGNATURE_HEADER, f"t={START.timestamp():.0f},v1={'0' * 64}")],
    ],
    ids=["unsigned", "of a wrong signature", "of a wrong signature with a time"],
)
def test_bodies_that_fill_the_memory_for_bodies_keep_no_delivery_out(
    tmp_path: Path, headers: Headers
) -> None:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    large = request(b"x" * BODY_MAX, headers)[:-1]
    with served(home, Clock()) as receiver, ExitStack() as opened:
        for _ in range(BUFFERED_MAX // BODY_MAX + 16):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            # A server that refuses the head may have closed the connection by now.
            with suppress(BrokenPipeError, ConnectionResetError):
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


@pytest.mark.long
def test_slow_bodies_that_fill_the_memory_for_bodies_leave_room_when_they_end(
    receiver: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.receiver.app.BUFFERED_MAX", 1_000_000)
    body = b"x" * 200_000
    large = request(body, signature(body, at=START))
    with ExitStack() as opened:
        slow = []
        for _ in range(8):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            client.sendall(large[:-1])
            slow.append(client)
        statuses = [answer_on(client).status for client in slow]
    assert set(statuses) == {408}
    wait_for(lambda: receiver.post(body).status == 204)
