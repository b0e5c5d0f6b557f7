"""A proxy in front of an S3 server that counts the objects and bytes that readers get."""

import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

from tests.hangs import HANGS_AFTER_S

_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


@dataclass
class Traffic:
    """The bytes of the responses to GET, by path of the object, without the bucket."""

    address: str = ""
    gets: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def clear(self) -> None:
        with self.lock:
            self.gets.clear()
            self.bytes.clear()

    def data_files(self, table: str) -> set[str]:
        return {path for path in self.bytes if f"/{table}/data/" in path}

    def metadata_bytes(self) -> int:
        return sum(size for path, size in self.bytes.items() if "/data/" not in path)


@contextmanager
def counting_proxy(server: str) -> Iterator[Traffic]:
    """Run a proxy to a server on loopback; yield what it counts."""
    traffic, target = Traffic(), urlsplit(server).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            connection = http.client.HTTPConnection(target, timeout=HANGS_AFTER_S)
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            if self.command == "GET" and answer.status in (200, 206) and "?" not in self.path:
                with traffic.lock:
                    traffic.gets[self.path] += 1
                    traffic.bytes[self.path] += len(content)
            self.send_response(answer.status)
            is_sized = self.command == "HEAD"
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP and (is_sized or name != "Content-Length"):
                    self.send_header(name, value)
            if not is_sized:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    traffic.address = f"http://127.0.0.1:{proxy.server_address[1]}"
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield traffic
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(HANGS_AFTER_S)
