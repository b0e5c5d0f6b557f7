"""A proxy in front of a sandbox that may interrupt an answer at any byte, and moves the clock.

Belongs here: sockets, and which answers passed. Does not: what is pulled and what is right.
"""

import socket
import threading
from collections.abc import Callable
from datetime import datetime

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S

Cut = Callable[[bytes, bytes], bytes]
"""Returns the bytes to send, from the head and the body of an answer."""


class CuttingUpstream:
    """Passes requests to a sandbox, one for each connection.

    `before` runs before each, `cut` on each answer. `dated` has the service's instant of each
    answer whose head was sent completely.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.before: Callable[[], None] = lambda: None
        self.cut: Cut = lambda head, body: head + body
        self.dated: list[datetime] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "CuttingUpstream":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(HANGS_AFTER_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(HANGS_AFTER_S)
                try:
                    self._pass_on(connection)
                except OSError:
                    continue

    def _pass_on(self, connection: socket.socket) -> None:
        request = _read_head(connection)
        if not request:
            return
        self.before()
        at = self._sandbox.clock.now()
        head, body = self._answer(request)
        sent = self.cut(head, body)
        if len(sent) >= len(head):
            self.dated.append(at)
        connection.sendall(sent)
        # Otherwise unread bytes would reset the connection, and sent bytes would be lost.
        connection.shutdown(socket.SHUT_WR)

    def _answer(self, request: bytes) -> tuple[bytes, bytes]:
        """Return the head of the sandbox's answer, with the empty line after it, and its body."""
        first, *lines = request.split(b"\r\n")
        kept = [line for line in lines if line and not line.lower().startswith(b"connection:")]
        with socket.create_connection(("127.0.0.1", self._sandbox.port)) as upstream:
            upstream.sendall(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))
            answer = bytearray()
            while piece := upstream.recv(1 << 20):
                answer += piece
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        return head + b"\r\n\r\n", body


def _read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        head += piece
    return head
