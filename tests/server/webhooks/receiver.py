"""An HTTP server on loopback that keeps the deliveries it is sent."""

import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from catalog.contract.constants import SIGNATURE_HEADER


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return str(json.loads(self.body)["id"])

    @property
    def signature(self) -> str:
        return self.headers[SIGNATURE_HEADER]

    def is_signed_with(self, *secrets: str) -> bool:
        """Whether the header is the plain hex of the raw body, with each of these secrets."""
        return self.signature == ",".join(digest(secret, self.body) for secret in secrets)


def digest(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


class Receiver:
    """An HTTP server on loopback that keeps requests; `answer` returns the status of each."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer: Callable[[Received], int] = lambda _: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed in the middle of a post
                    return
                request = Received(self.path, dict(self.headers.items()), body)
                receiver.received.append(request)
                status = receiver.answer(request)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Log nothing when a killed sender closes."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
