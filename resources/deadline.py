"""A bound on a whole request: connect, TLS, headers and body together.

The timeouts of httpx bound each read alone, so that an answer that dribbles, a byte before
each timeout, never ends. Here every operation on the socket gets no more than what is left.
"""

import ssl
import time
from collections.abc import Iterable
from threading import local
from typing import Any

import httpcore
import httpx


class Deadlines(local):
    """When the request of this thread must be over, on `time.monotonic`."""

    at: float = float("inf")

    def left_s(self, timeout: float | None, failure: type[Exception]) -> float | None:
        """Return the timeout for one operation. Raises `failure` when no time is left."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise failure("the whole request took longer than its bound")
        if left == float("inf"):
            return timeout
        return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._stream = stream
        self._deadlines = deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._deadlines.left_s(timeout, httpcore.ReadTimeout)
        return self._stream.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadlines.left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left_s(timeout, httpcore.ConnectTimeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, left)
        return _Stream(secured, self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend, deadlines: Deadlines) -> None:
        self._backend = backend
        self._deadlines = deadlines

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left_s(timeout, httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._deadlines)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own transport, with `deadlines` in force on its sockets."""

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
        connections: int = 32,
    ) -> None:
        self.deadlines = Deadlines()
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        # Proxies and certificates are handed in: the environment is read by the settings alone.
        super().__init__(verify=verify, proxy=proxy, trust_env=False, limits=limits)
        # httpx has no argument for the backend; a dribbling answer in the tests guards this line.
        self._pool._network_backend = _Backend(self._pool._network_backend, self.deadlines)
