"""A forward proxy, a TLS front and a faulty front, each a process of its own on loopback.

    python -m tests.pipeline.network.relay proxy LOG [USER:PASSWORD]
    python -m tests.pipeline.network.relay tls LOG CERTIFICATE KEY PORT
    python -m tests.pipeline.network.relay faulty LOG PATH ANSWER PORT

Each prints its port, and appends a line to LOG for each connection or request. The proxy connects
every name under `.test` to loopback. The faulty front answers requests to PATH with the bytes of
the file ANSWER, and passes the others on.
"""

import base64
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

Serve = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Relay:
    """A running relay; `seen` are the lines of its log."""

    port: int
    log: Path

    @property
    def seen(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextmanager
def relay(log: Path, kind: str, *words: object) -> Iterator[Relay]:
    """Start a relay as a process, and end it."""
    command = [sys.executable, "-m", "tests.pipeline.network.relay", kind, str(log)]
    with subprocess.Popen(
        [*command, *map(str, words)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        try:
            yield Relay(int(process.stdout.readline()), log)
        finally:
            process.kill()


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65_536)
        if not received:
            return b""
        head += received
    return head


def join(first: socket.socket, second: socket.socket) -> None:
    """Pass on what either of two connections sends, until one of them ends."""

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    back = threading.Thread(target=pass_on, args=(second, first), daemon=True)
    back.start()
    pass_on(first, second)
    back.join()


def connect(host: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1" if host.endswith(".test") else host, port))


def refusal_of(head: bytes) -> bytes:
    """Return a refusal that repeats the login, as some proxies do."""
    lines = head.split(b"\r\n")
    login = b"".join(line for line in lines if line.lower().startswith(b"proxy-auth"))
    begin = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\n\r\n"
    return begin % len(login) + login


def serve_proxy(log: Callable[[str], None], login: str | None) -> Serve:
    def serve(client: socket.socket) -> None:
        head = read_head(client)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        log(f"{method} {target}")
        expected = None if login is None else base64.b64encode(login.encode())
        if expected is not None and expected not in head:
            client.sendall(refusal_of(head))
            return
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            with connect(host, int(port)) as service:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                join(client, service)
            return
        parts = urlsplit(target)
        with connect(parts.hostname or "", parts.port or 80) as service:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            # One request for each connection, so that each is counted.
            head = head.replace(target.encode(), path.encode(), 1)
            head = head.replace(b"Connection: keep-alive", b"Connection: close")
            service.sendall(head)
            join(client, service)

    return serve


def serve_tls(log: Callable[[str], None], certificate: str, key: str, port: str) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(client: socket.socket) -> None:
        log("connection")
        with (
            context.wrap_socket(client, server_side=True) as secured,
            connect("127.0.0.1", int(port)) as service,
        ):
            join(secured, service)

    return serve


def serve_faulty(log: Callable[[str], None], path: str, answer: str, port: str) -> Serve:
    body = Path(answer).read_bytes()

    def serve(client: socket.socket) -> None:
        head = read_head(client)
        if not head:
            return
        target = head.split(b"\r\n")[0].decode().split(" ")[1]
        log(target)
        if urlsplit(target).path == path:
            client.sendall(body)
            return
        with connect("127.0.0.1", int(port)) as service:
            service.sendall(head.replace(b"Connection: keep-alive", b"Connection: close"))
            join(client, service)

    return serve


def main(kind: str, log_file: str, *words: str) -> None:
    lock = threading.Lock()

    def log(line: str) -> None:
        with lock, Path(log_file).open("a") as file:
            file.write(line + "\n")

    serve: Serve
    if kind == "proxy":
        serve = serve_proxy(log, words[0] if words else None)
    elif kind == "tls":
        serve = serve_tls(log, *words)
    else:
        serve = serve_faulty(log, *words)

    def serve_one(client: socket.socket) -> None:
        with client, suppress(OSError, ValueError):
            serve(client)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve_one, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
