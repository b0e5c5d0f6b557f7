"""Bodies that are large, slow or cut, at every address: each is refused, ends, and costs a line."""

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from catalog.server.body_limit import BODIES_MAX, BODY_MAX, BodyLimit, BodyReader
from catalog.server.hosting import HostedApp
from catalog.server.middleware import AccessLog, Metrics
from tests.application.receiver.served import answer_on, served, signature
from tests.application.web.test_mcp_route import ACCEPTED, post
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.inbox.deliveries import START, Clock, delivery
from warehouse.clock import utc_now
from warehouse.home import Home


@dataclass(frozen=True, slots=True)
class Target:
    """An address that takes bodies. `headers` are those that a body needs to be read."""

    address: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    def head(self, length: int) -> bytes:
        host = self.address.partition(":")[0]
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()

    def open(self) -> socket.socket:
        host, _, port = self.address.partition(":")
        return socket.create_connection((host, int(port)), timeout=HANGS_AFTER_S)


NAMES = ("mcp", "page", "calendar", "interface", "replay", "sandbox", "receiver")


@pytest.fixture(scope="module")
def targets(
    clients: dict[str, httpx.Client], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    mirror, replay, sandbox = (
        urlsplit(str(clients[name].base_url)).netloc for name in ("mirror", "replay", "sandbox")
    )
    home = Home(tmp_path_factory.mktemp("receiver") / "home", wait_s=0)
    home.claim("sandbox:1")
    accepted = tuple(ACCEPTED.items())
    with served(home, Clock()) as receiver:
        yield {
            "mcp": Target(mirror, "POST", "/mcp", accepted),
            "page": Target(mirror, "POST", "/"),
            "calendar": Target(mirror, "POST", "/calendar"),
            "interface": Target(mirror, "POST", "/v2/events"),
            "replay": Target(replay, "PUT", "/replay/clock"),
            "sandbox": Target(sandbox, "PUT", "/sandbox/clock"),
            "receiver": Target(
                f"127.0.0.1:{receiver.port}",
                "POST",
                "/webhooks",
                tuple(signature(delivery(1), at=START)),
            ),
        }


@pytest.mark.parametrize("name", NAMES)
def test_body_over_the_limit_is_refused_by_its_length_alone(
    targets: dict[str, Target], name: str
) -> None:
    with targets[name].open() as client:
        client.sendall(targets[name].head(BODY_MAX + 1))
        assert answer_on(client).status == 413


def test_cut_body_logs_one_line_at_most_and_no_traceback(
    targets: dict[str, Target], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    for target in targets.values():
        for then in ("leave", "finish", "reset"):
            with target.open() as client:
                client.sendall(target.head(100) + b'{"jsonrpc"')
                if then == "finish":
                    client.shutdown(socket.SHUT_WR)
                    with suppress(ConnectionResetError):
                        client.recv(65_536)
                elif then == "reset":
                    linger = struct.pack("ii", 1, 0)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def count_lines() -> int:
        return sum("The client left" in line for line in caplog.messages)

    # The receiver counts its refusals in a line a minute. A reset may come before the head is read.
    doors = len(targets) - 1
    wait_for(lambda: count_lines() >= 2 * doors)
    assert count_lines() <= 3 * doors
    assert len([record for record in caplog.records if record.name.startswith("application")]) <= 1
    assert not [record for record in caplog.records if record.exc_info]
    assert "Traceback" not in "".join(capfd.readouterr())


def open_drips(opened: ExitStack, target: Target, count: int) -> list[socket.socket]:
    drips = [opened.enter_context(target.open()) for _ in range(count)]
    for client in drips:
        client.sendall(target.head(1_000) + b"{")
    return drips


def is_closed(client: socket.socket) -> bool:
    """Send one more byte of a body; return whether the server has ended the connection."""
    try:
        client.settimeout(0.01)
        client.sendall(b" ")
        while client.recv(65_536):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def test_drips_over_the_number_of_bodies_end_and_mcp_goes_on(
    targets: dict[str, Target], client: httpx.Client
) -> None:
    with ExitStack() as opened:
        drips = open_drips(opened, targets["mcp"], BODIES_MAX + 44)
        assert post(client).status_code == 200
        wait_for(lambda: sum(map(is_closed, drips[:44])) == 44)
        assert post(client).status_code == 200


@pytest.mark.long
def test_300_drips_are_closed_at_the_limit_of_time(
    targets: dict[str, Target], client: httpx.Client
) -> None:
    with ExitStack() as opened:
        drips = open_drips(opened, targets["mcp"], 300)
        wait_for(lambda: all(map(is_closed, drips)))
        assert post(client).status_code == 200


def test_drip_is_closed_at_the_limit_of_time() -> None:
    async def count(request: Request) -> JSONResponse:
        return JSONResponse(len(await request.body()))

    log = Middleware(AccessLog, now=utc_now, metrics=Metrics(), headers={})
    limit = Middleware(BodyLimit, reader=BodyReader(within_s=0.3))
    app = Starlette(routes=[Route("/", count, methods=["POST"])], middleware=[log, limit])
    with HostedApp(app) as hosted:
        target = Target(urlsplit(hosted.base_url).netloc, "POST", "/")
        with ExitStack() as opened:
            drips = open_drips(opened, target, 40)
            wait_for(lambda: all(map(is_closed, drips)))
            answer = httpx.post(hosted.base_url, content=b"abc", timeout=HANGS_AFTER_S)
        assert answer.json() == 3
