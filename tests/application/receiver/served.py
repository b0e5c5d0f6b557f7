"""The receiver's application on the real server, in this process, over loopback."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from application.receiver import Receiver
from catalog.contract.constants import SIGNATURE_HEADER, SignatureForm
from catalog.contract.signatures import Verifier, sign
from catalog.server.hosting import HostedApp
from tests.application.receiver.programs import SECRET
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.inbox.deliveries import Clock, bodies_in
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

PATH = "/webhooks"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client read until the connection ended. Status 0: it ended without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Served:
    """A receiver that is being served. `clock` and `secrets` may be changed."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self.home = home
        self.clock = clock
        self.port = 0
        self.secrets: tuple[str, ...] = ()
        self._start = clock.now()
        self.reset()

    def reset(self) -> None:
        self.secrets = (SECRET,)
        self.clock.instant = self._start

    def verifier(self) -> Verifier:
        return Verifier(self.secrets)

    def stored(self) -> list[bytes]:
        """Return the bodies in the inbox, in order of receipt."""
        return bodies_in(self.home)

    def post(self, body: bytes, *, headers: Headers | None = None, **signed: Any) -> Answer:
        """Send one delivery, signed unless other headers are given."""
        given = signature(body, at=self.clock.now(), **signed) if headers is None else headers
        return self.send(request(body, given))

    def count(self) -> int:
        """Return the number of files in the inbox."""
        return len(Inbox(self.home).names())

    def send(self, *pieces: bytes, then: str = "read") -> Answer:
        """Send raw bytes, and return the answer.

        `then` is what the client does after them: read; finish, which ends its side alone; leave,
        which closes the connection; reset, which aborts it.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=HANGS_AFTER_S) as client:
            # A server that answers early may have closed the connection by now.
            with suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    client.sendall(piece)
            if then == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if then in ("reset", "leave"):
                return Answer(0, {}, b"")
            if then == "finish":
                client.shutdown(socket.SHUT_WR)
            return answer_on(client)


@contextmanager
def served(home: Home, clock: Clock, **options: Any) -> Iterator[Served]:
    """Serve a home; `options` are the application's."""
    serving = Served(home, clock)
    receiver = Receiver(serving.verifier, Inbox(home), clock.now, path=PATH, **options)
    with HostedApp(receiver.app) as hosted:
        serving.port = hosted.port
        yield serving


def signature(
    body: bytes, *, at: datetime, form: SignatureForm = "hex", secrets: Sequence[str] = (SECRET,)
) -> Headers:
    return [(SIGNATURE_HEADER, sign(body, secrets=secrets, at=at, form=form))]


def request(
    body: bytes,
    headers: Headers = (),
    *,
    method: str = "POST",
    path: str = PATH,
    length: Sequence[str] | None = None,
    chunks: Sequence[int] | None = None,
) -> bytes:
    """Return the bytes of a request that is the only one of its connection.

    `length` replaces the headers of the length; with `chunks` the body is sent in chunks of these
    sizes and one with the rest.
    """
    lengths = [str(len(body))] if length is None else length
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    if chunks is None:
        lines += [f"Content-Length: {value}" for value in lengths]
        sent = body
    else:
        lines.append("Transfer-Encoding: chunked")
        sent = b"".join(_chunks(body, chunks))
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + sent


def _chunks(body: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    for size in (*sizes, len(body)):
        part, body = body[:size], body[size:]
        if part:
            yield b"%x\r\n%b\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def answer_on(client: socket.socket) -> Answer:
    """Read an answer to the end of the connection; informational answers are left out."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(65_536):
            data += piece
    while data.startswith(b"HTTP/1.1 1"):
        _, _, data = data.partition(b"\r\n\r\n")
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return Answer(0, {}, b"")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    return Answer(int(status.split()[1]), headers, body)
