"""The server with bad connections: it closes them, and serves others meanwhile."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import httpx
import pytest

from catalog.server import hosting
from catalog.server.accounts import KeyBook, UsageBook
from catalog.server.app import ServerParts, build_app
from catalog.server.body_limit import BodyLimit, BodyReader
from catalog.server.hosting import HostedApp
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.bare_server import NOW, BareStore, event, grant

REQUEST = b"GET /v2/events HTTP/1.1\r\nHost: localhost\r\nx-api-key: elite\r\n"
ROWS = 5_000


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    store = BareStore(*(event(f"e{n}") for n in range(ROWS)))
    parts = ServerParts(
        store=lambda _: store,  # type: ignore[arg-type, return-value]
        keys=KeyBook(fixed=[grant("elite", "elite")]),
        usage=UsageBook(),
        now=lambda: NOW,
    )
    headers, bodies = {"x-api-key": "elite"}, BodyReader(within_s=2.0)
    # Without `verify=False` each client reads the certificates of the machine, 20 ms.
    with (
        patch.object(hosting, "HEADER_TIMEOUT_S", 2.0),
        HostedApp(BodyLimit(build_app(parts), bodies)) as hosted,
        httpx.Client(
            base_url=hosted.base_url, headers=headers, verify=False, timeout=HANGS_AFTER_S
        ) as client,
    ):
        yield client


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


def test_idle_partial_and_dribbling_connections_are_closed(client: httpx.Client) -> None:
    port = client.base_url.port
    assert port is not None
    posted = REQUEST.replace(b"GET", b"POST") + b"Content-Length: 1000\r\n\r\nhalf"
    kinds = {
        "idle": (b"", b""),
        "half a header": (REQUEST, b""),
        "a header that dribbles": (REQUEST, b"x-more: y\r\n"),
        "half a body": (REQUEST + b"Content-Length: 1000\r\n\r\nhalf", b""),
        "half a posted body": (posted, b""),
        "a posted body that dribbles": (posted, b"x"),
        "idle after an answer": (REQUEST + b"\r\n", b""),
    }
    with ThreadPoolExecutor(len(kinds)) as pool:
        waits = {
            name: pool.submit(wait_until_closed, port, first, dribble=dribble)
            for name, (first, dribble) in kinds.items()
        }
        while not all(wait.done() for wait in waits.values()):
            assert client.get("/v2/events").status_code == 200
            time.sleep(0.2)
    assert {name: wait.exception() for name, wait in waits.items()} == dict.fromkeys(kinds)
