"""A forward proxy, a TLS front and a faulty front on loopback, each in threads of the test."""

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Relay:
    """A running relay. `seen` has a line for each connection or request, `passed` all bytes."""

    serve: "Callable[[Relay, socket.socket], None]"
    port: int = 0
    seen: list[str] = field(default_factory=list)
    passed: bytearray = field(default_factory=bytearray)

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve_one, args=(client,), daemon=True).start()

    def _serve_one(self, client: socket.socket) -> None:
        with client, suppress(OSError, ValueError):
            self.serve(self, client)

    def join(self, client: socket.socket, service: socket.socket) -> None:
        """Pass on what either side sends, until one of them ends."""

        def pass_on(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while chunk := source.recv(65_536):
                    self.passed.extend(chunk)
                    target.sendall(chunk)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        back = threading.Thread(target=pass_on, args=(service, client), daemon=True)
        back.start()
        pass_on(client, service)
        back.join()


@contextmanager
def running(serve: Callable[[Relay, socket.socket], None]) -> Iterator[Relay]:
    relay = Relay(serve)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay.port = listener.getsockname()[1]
        threading.Thread(target=relay.accept, args=(listener,), daemon=True).start()
        yield relay
        listener.shutdown(socket.SHUT_RDWR)


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65_536)
        if not received:
            raise OSError("no request")
        head += received
    return head


def connect(host: str, port: int) -> socket.socket:
    """Connect to a host; every name under `.test` is loopback."""
    return socket.create_connection(("127.0.0.1" if host.endswith(".test") else host, port))


def forward_proxy(login: str) -> Callable[[Relay, socket.socket], None]:
    """Return a proxy with a login. Its refusal repeats the login, as that of some proxies does."""
    expected = base64.b64encode(login.encode())

    def serve(relay: Relay, client: socket.socket) -> None:
        head = read_head(client)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        relay.seen.append(f"{method} {target}")
        if expected not in head:
            given = next((x for x in head.split(b"\r\n") if x.lower().startswith(b"proxy-")), b"")
            start = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\n\r\n"
            client.sendall(start % len(given) + given)
            return
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            with connect(host, int(port)) as service:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay.join(client, service)
            return
        parts = urlsplit(target)
        with connect(parts.hostname or "", parts.port or 80) as service:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            head = head.replace(target.encode(), path.encode(), 1)
            # One request for each connection, so that each is counted.
            service.sendall(head.replace(b"Connection: keep-alive", b"Connection: close"))
            relay.join(client, service)

    return serve


def tls_front(certificate: Path, key: Path, port: int) -> Callable[[Relay, socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(relay: Relay, client: socket.socket) -> None:
        relay.seen.append("connection")
        with (
            context.wrap_socket(client, server_side=True) as secured,
            connect("127.0.0.1", port) as service,
        ):
            relay.join(secured, service)

    return serve


def faulty_front(path: str, answer: bytes, port: int) -> Callable[[Relay, socket.socket], None]:
    """Return a front that answers one path with some bytes, and passes other requests on."""

    def serve(relay: Relay, client: socket.socket) -> None:
        head = read_head(client)
        target = head.split(b"\r\n")[0].decode().split(" ")[1]
        relay.seen.append(target)
        if urlsplit(target).path == path:
            client.sendall(answer)
            return
        with connect("127.0.0.1", port) as service:
            service.sendall(head.replace(b"Connection: keep-alive", b"Connection: close"))
            relay.join(client, service)

    return serve
