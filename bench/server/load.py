"""The load generator: keep-alive connections that send prepared bytes, and the times of answers."""

import asyncio
import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httptools

_CONNECTIONS: Final = 8


class LoadError(Exception):
    """An answer had a status other than 200, or a connection was closed during a request."""


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of each request, and of the whole run."""

    seconds: Sequence[float]
    elapsed_s: float

    @property
    def per_s(self) -> float:
        return len(self.seconds) / self.elapsed_s

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return 1_000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


class _ClosedLoop:
    """Sends each request once over some connections; stops after a time at the latest."""

    def __init__(self, requests: Sequence[bytes], for_s: float, bodies: list[bytes] | None) -> None:
        self.requests, self.for_s, self.bodies = requests, for_s, bodies
        self.sent = self.in_progress = 0
        self.seconds: list[float] = []
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_at = math.inf

    async def run(self, port: int) -> Times:
        loop = asyncio.get_running_loop()
        count = min(_CONNECTIONS, len(self.requests))
        opened = [
            (await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port))[1]
            for _ in range(count)
        ]
        began = time.perf_counter()
        self.stop_at = began + self.for_s
        for connection in opened:
            self.send_next(connection)
        await self.finished
        elapsed = time.perf_counter() - began
        for connection in opened:
            connection.transport.abort()
        return Times(self.seconds, elapsed)

    def send_next(self, connection: "_Connection") -> None:
        place = self.sent
        self.sent += 1
        self.in_progress += 1
        connection.send(place, self.requests[place])

    def end_request(self, connection: "_Connection", now: float) -> None:
        self.in_progress -= 1
        self.seconds.append(now - connection.began)
        if self.bodies is not None:
            self.bodies[connection.place] = b"".join(connection.chunks)
        if self.sent < len(self.requests) and now < self.stop_at:
            self.send_next(connection)
        elif self.in_progress == 0 and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(LoadError(reason))


class _Connection(asyncio.Protocol):
    """A connection with at most one request in progress."""

    def __init__(self, loop: _ClosedLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._request = b""
        self.place = 0
        self.began = 0.0
        self.chunks: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, place: int, request: bytes) -> None:
        self.place, self._request = place, request
        self.chunks.clear()
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self._loop.bodies is not None:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        now, request = time.perf_counter(), self._request.partition(b"\r\n")[0].decode()
        self._request = b""
        if (status := self._parser.get_status_code()) != 200:
            self._loop.fail(f"{status} to {request}")
        elif not self._parser.should_keep_alive():
            self._loop.fail("the server does not keep the connection")
        else:
            self._loop.end_request(self, now)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._request:
            self._loop.fail(f"the connection was closed during {self._request!r}")


def send_all(port: int, requests: Sequence[bytes], *, for_s: float) -> Times:
    """Send each request once, eight at a time; stop after `for_s` at the latest.

    Raises:
        LoadError: a request failed.
    """
    return _run(port, requests, for_s, None)


def fetch_bodies(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Return the body of each answer, in the order of the requests.

    Raises:
        LoadError: a request failed.
    """
    bodies = [b""] * len(requests)
    if requests:
        _run(port, requests, math.inf, bodies)
    return bodies


def _run(port: int, requests: Sequence[bytes], for_s: float, bodies: list[bytes] | None) -> Times:
    async def run() -> Times:
        return await _ClosedLoop(requests, for_s, bodies).run(port)

    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return asyncio.run(run())
    finally:
        gc.enable()
        gc.unfreeze()
