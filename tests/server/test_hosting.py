"""The server with bad connections: it closes them, and serves others meanwhile."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.server.hosting import HostedApp, HostingError
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.small_catalog import Service, event, serving, view

REQUEST = b"GET /v2/events HTTP/1.1\r\nHost: localhost\r\nx-api-key: elite\r\n"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(view([event("a")])) as service:
        yield service


def wait_until_closed(port: int, first: bytes, *, dribble: bytes = b"") -> None:
    """Send `first`, then `dribble` repeatedly, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.25)
        connection.sendall(first)

        def is_closed() -> bool:
            try:
                if dribble:
                    connection.sendall(dribble)
                return not connection.recv(65_536)
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_for(is_closed)


def test_idle_half_header_half_body_and_dribbling_connections_are_closed(
    service: Service,
) -> None:
    port = service.client.base_url.port
    assert port is not None
    kinds = {
        "idle": (b"", b""),
        "half a header": (REQUEST, b""),
        "a header that dribbles": (REQUEST, b"x-more: y\r\n"),
        "half a body": (REQUEST + b"Content-Length: 1000\r\n\r\nhalf", b""),
        "half a posted body": (
            REQUEST.replace(b"GET", b"POST") + b"Content-Length: 1000\r\n\r\nhalf",
            b"",
        ),
        "idle after an answer": (REQUEST + b"\r\n", b""),
    }
    with ThreadPoolExecutor(len(kinds)) as pool:
        waits = {
            name: pool.submit(wait_until_closed, port, first, dribble=dribble)
            for name, (first, dribble) in kinds.items()
        }
        while not all(wait.done() for wait in waits.values()):
            assert service.get("/v2/events").status_code == 200
            time.sleep(0.2)
    assert {name: wait.exception() for name, wait in waits.items()} == dict.fromkeys(kinds)


def test_garbage_is_a_400_and_the_server_continues(service: Service) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"hello\r\n\r\n", b"\x00" * 300):
        answer = exchange(service.client.base_url.port or 0, garbage)
        assert not answer.startswith(b"HTTP/1.1 5")
    assert service.get("/v2/events").status_code == 200


@pytest.mark.parametrize("size", [70_000, 1_000_000])
def test_headers_and_paths_beyond_the_buffer_are_refused_without_a_5xx(
    service: Service, size: int
) -> None:
    for request in (
        REQUEST.replace(b"events", b"events/" + b"x" * size) + b"\r\n",
        REQUEST + b"filler: " + b"x" * size + b"\r\n\r\n",
    ):
        answer = exchange(service.client.base_url.port or 0, request)
        # Empty: the server closed before all bytes were sent.
        assert answer == b"" or answer.split()[1] in (b"414", b"431")
    assert service.get("/v2/events").status_code == 200


def exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(HANGS_AFTER_S)
        try:
            connection.sendall(request)
            return connection.recv(65_536)
        except ConnectionError:
            return b""


def test_a_client_that_hangs_up_inside_an_export_does_no_harm() -> None:
    many = [event(f"e{n}") for n in range(5_000)]
    with serving(view(many)) as service:
        for _ in range(3):
            with service.client.stream(
                "GET", "/v2/events/export", headers={"x-api-key": "elite"}
            ) as answer:
                next(answer.iter_raw(1000))
        assert service.get("/v2/events/export").text.count("\r\n") == 5_001


def test_a_taken_port_is_a_clear_error() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("not requested")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostingError, match=f"can't listen on 127.0.0.1 port {port}"):
            HostedApp(app, port=port).start()  # type: ignore[arg-type]
