"""The load generator: keep-alive connections that send prepared bytes, and their times.

Of an answer only the end is detected, unless its body is requested. Times are in seconds.
"""

import asyncio
import gc
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

import httptools

CONNECTIONS = 8
_OPEN_CONNECTIONS = 64
_DRAIN_S = 15.0


class LoadError(Exception):
    """An answer had another status than expected, or a connection was closed during a request."""


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one run of requests."""

    seconds: Sequence[float]
    elapsed_s: float
    body_bytes: int

    @property
    def per_s(self) -> float:
        return len(self.seconds) / self.elapsed_s

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return 1_000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


class Connection(asyncio.Protocol):
    """One connection with at most one request in progress; `done` is called at each end."""

    def __init__(
        self, done: Callable[["Connection"], None], *, keep: bool = False, expected: int = 200
    ) -> None:
        self._done = done
        self._keep = keep
        self._expected = expected
        self._parser = httptools.HttpResponseParser(self)
        self.request = b""
        self.place = 0
        self.began = 0.0
        self.body_bytes = 0
        self.chunks: list[bytes] = []
        self.failed: Exception | None = None
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: bytes, place: int, began: float) -> None:
        self.request, self.place, self.began = request, place, began
        self.busy = True
        self.chunks.clear()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self._keep:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        self.busy = False
        if (status := self._parser.get_status_code()) != self._expected:
            self.failed = LoadError(f"{status} to {self.request.splitlines()[0].decode()}")
        elif not self._parser.should_keep_alive():
            self.failed = LoadError("the server does not keep the connection")
        self._done(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self.failed = LoadError(f"connection closed under {self.request.splitlines()[0]!r}")
            self._done(self)


def closed_loop(
    port: int,
    requests: Sequence[bytes],
    *,
    for_s: float,
    connections: int = CONNECTIONS,
    expected: int = 200,
) -> Times:
    """Send each request once, `connections` at a time; stop after `for_s` at the latest."""
    return _run(_closed_loop(port, requests, for_s, connections=connections, expected=expected))


def open_loop(
    port: int, requests: Sequence[bytes], *, rate_per_s: float, for_s: float, expected: int = 200
) -> Times:
    """Send requests at fixed moments, without waiting for earlier ones; repeat them if few.

    A time starts when the request was due, also when no connection was free then.
    """
    return _run(_open_loop(port, requests, rate_per_s, for_s, expected))


def all_at_once(
    port: int, requests: Sequence[bytes], *, connections: int, expected: int = 200
) -> Times:
    """Send each request once, all due at one moment; a wait for a free connection is counted."""
    return _run(_all_at_once(port, requests, connections, expected))


def fetch(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Return the body of each answer, in the order of the requests."""
    bodies = [b""] * len(requests)

    def keep(connection: Connection) -> None:
        bodies[connection.place] = b"".join(connection.chunks)

    _run(_closed_loop(port, requests, math.inf, keep))
    return bodies


def _run(coroutine: Coroutine[object, object, Times]) -> Times:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return asyncio.run(coroutine)
    finally:
        gc.enable()
        gc.unfreeze()


async def _connect(
    port: int,
    count: int,
    done: Callable[[Connection], None],
    *,
    keep: bool = False,
    expected: int = 200,
) -> list[Connection]:
    loop = asyncio.get_running_loop()

    def made() -> Connection:
        return Connection(done, keep=keep, expected=expected)

    return [(await loop.create_connection(made, "127.0.0.1", port))[1] for _ in range(count)]


async def _closed_loop(
    port: int,
    requests: Sequence[bytes],
    for_s: float,
    each: Callable[[Connection], None] | None = None,
    *,
    connections: int = CONNECTIONS,
    expected: int = 200,
) -> Times:
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seconds: list[float] = []
    sent = in_progress = 0
    clock = time.perf_counter

    def done(connection: Connection) -> None:
        nonlocal in_progress
        now = clock()
        in_progress -= 1
        if connection.failed is not None:
            if not finished.done():
                finished.set_exception(connection.failed)
            return
        seconds.append(now - connection.began)
        if each is not None:
            each(connection)
        if sent < len(requests) and now < stop_at:
            send_next(connection)
        elif in_progress == 0 and not finished.done():
            finished.set_result(None)

    def send_next(connection: Connection) -> None:
        nonlocal sent, in_progress
        in_progress += 1
        connection.send(requests[sent], sent, clock())
        sent += 1

    count = min(connections, len(requests))
    opened = await _connect(port, count, done, keep=each is not None, expected=expected)
    began = clock()
    stop_at = began + for_s
    for connection in opened:
        send_next(connection)
    await finished
    elapsed = clock() - began
    return _closed(opened, seconds, elapsed)


async def _open_loop(
    port: int, requests: Sequence[bytes], rate_per_s: float, for_s: float, expected: int
) -> Times:
    loop = asyncio.get_running_loop()
    seconds: list[float] = []
    waiting: deque[tuple[int, float]] = deque()
    finished: asyncio.Future[None] = loop.create_future()
    count = int(rate_per_s * for_s)
    clock = time.perf_counter

    def done(connection: Connection) -> None:
        if connection.failed is not None:
            if not finished.done():
                finished.set_exception(connection.failed)
            return
        seconds.append(clock() - connection.began)
        if len(seconds) == count and not finished.done():
            finished.set_result(None)
        if waiting:
            place, due = waiting.popleft()
            connection.send(requests[place], place, due)
        else:
            free.append(connection)

    def send(number: int) -> None:
        place = number % len(requests)
        if free:
            free.popleft().send(requests[place], place, clock())
        else:
            waiting.append((place, clock()))

    connections = await _connect(port, _OPEN_CONNECTIONS, done, expected=expected)
    free = deque(connections)
    began, start = clock(), loop.time()
    for number in range(count):
        loop.call_at(start + number / rate_per_s, send, number)
    try:
        await asyncio.wait_for(finished, for_s + _DRAIN_S)
    except TimeoutError as error:
        missing = count - len(seconds)
        raise LoadError(f"{missing} of {count} requests had no answer in time") from error
    elapsed = clock() - began
    return _closed(connections, seconds, elapsed)


async def _all_at_once(
    port: int, requests: Sequence[bytes], connections: int, expected: int
) -> Times:
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seconds: list[float] = []
    clock = time.perf_counter
    places = iter(range(len(requests)))

    def done(connection: Connection) -> None:
        if connection.failed is not None:
            if not finished.done():
                finished.set_exception(connection.failed)
            return
        seconds.append(clock() - began)
        send_next(connection)
        if len(seconds) == len(requests) and not finished.done():
            finished.set_result(None)

    def send_next(connection: Connection) -> None:
        if (place := next(places, None)) is not None:
            connection.send(requests[place], place, began)

    opened = await _connect(port, connections, done, expected=expected)
    began = clock()
    for connection in opened:
        send_next(connection)
    await asyncio.wait_for(finished, _DRAIN_S)
    return _closed(opened, seconds, clock() - began)


def _closed(connections: list[Connection], seconds: list[float], elapsed_s: float) -> Times:
    for connection in connections:
        connection.transport.abort()
    return Times(seconds, elapsed_s, sum(connection.body_bytes for connection in connections))
