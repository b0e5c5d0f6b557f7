"""Fakes for the tests of the client: a time that never waits, scripted and broken servers."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx

from catalog.contract.plans import day_end
from resources.http.client import CatalogClient
from resources.http.paginator import PAGED, ListProgress, Paginator
from resources.http.retry import Timing
from resources.scopes import find_day_start, split_filters
from tests.unlimited import Unlimited
from warehouse.landing.batches import Feed, Scope

STARTS_AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
KEY = "canary-5f1c9e7b2a"


def days(first: date, last: date, **filters: tuple[str, ...]) -> Scope:
    return Scope(lower=find_day_start(first), upper=day_end(last), **filters)


def paginated(
    client: CatalogClient,
    scope: Scope | None = None,
    *,
    feed: Feed = "events",
    limit: int | None = None,
) -> Paginator:
    progress = ListProgress(split_filters(scope or Scope()))
    if limit is None:
        return client.pages(feed, progress)
    return Paginator(client._caller, PAGED[feed], progress, limit)


class FakeTime:
    """A clock that advances only by a sleep, or when it is set. `slept` is in seconds."""

    def __init__(self, chance: float = 0.0) -> None:
        self.seconds = 1_000.0
        self.slept: list[float] = []
        self.chance = chance
        self._lock = threading.Lock()

    def clock(self) -> datetime:
        return STARTS_AT + timedelta(seconds=self.seconds - 1_000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.seconds += seconds

    def timing(self) -> Timing:
        return Timing(self.clock, self.monotonic, self.sleep, lambda: self.chance)


class FaultScript(httpx.BaseTransport):
    """The network, with the sandbox's faults for the first, second, … request; then none."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        # The certificates of the machine are not read, which takes 20 ms.
        self._network = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault = self.faults.pop(0) if self.faults else ""
        if fault:
            request.headers["Sandbox-Faults"] = fault
        return self._network.handle_request(request)

    def close(self) -> None:
        self._network.close()


Handler = Callable[[httpx.Request], httpx.Response]


def mocked(handler: Handler, **options: Any) -> CatalogClient:
    """Return a client whose network is a function; it neither waits nor is limited."""
    options.setdefault("timing", FakeTime().timing())
    options.setdefault("limiter", Unlimited())
    return CatalogClient(
        "https://catalog.test", KEY, transport=httpx.MockTransport(handler), **options
    )


def answering(*answers: httpx.Response | Exception) -> Handler:
    """Return a function that gives one answer after the other, the last one forever."""
    left = list(answers)

    def handle(_: httpx.Request) -> httpx.Response:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        headers = list(answer.headers.multi_items())
        return httpx.Response(answer.status_code, headers=headers, content=answer.content)

    return handle


def counted(rows: int, exports: Handler) -> Handler:
    """Return a function that answers the count of the rows of an export, and its requests."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("export"):
            return exports(request)
        return httpx.Response(200, json={"data": [], "meta": {"total": rows}})

    return handle


Chunk = bytes | float
"""Bytes to send, or seconds to pause before the next."""


@dataclass
class RawServer:
    """Sends bytes as they are. `answers[n]` is for the nth connection, the last for the rest."""

    answers: list[Iterable[Chunk]]
    heads: list[str] = field(default_factory=list)
    base_url: str = ""

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                received = connection.recv(65_536)
                if not received:
                    return
                head += received
            place = min(len(self.heads), len(self.answers) - 1)
            self.heads.append(head.decode("latin-1"))
            try:
                for chunk in self.answers[place]:
                    if isinstance(chunk, float):
                        time.sleep(chunk)
                    else:
                        connection.sendall(chunk)
            except OSError:
                return


@contextmanager
def raw_server(*answers: Iterable[Chunk]) -> Iterator[RawServer]:
    server = RawServer(list(answers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)


def head(*lines: str, status: str = "200 OK") -> bytes:
    lines_text = "".join(f"{line}\r\n" for line in lines)
    return f"HTTP/1.1 {status}\r\n{lines_text}Connection: close\r\n\r\n".encode()


def chunked(body: bytes, *, end: bool = True) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body) + (b"0\r\n\r\n" if end else b"")
