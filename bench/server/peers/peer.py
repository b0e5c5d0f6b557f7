"""The protocol of a server in the run, as the load generator uses it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.server.process import Running
from bench.server.workloads import EventsPage, WorkRequest


@dataclass(frozen=True, slots=True)
class Shown:
    """The content of an answer, for comparison: ids or slugs in order, the total of a list."""

    ids: tuple[str, ...]
    total: int | None = None


class Peer(Protocol):
    name: str
    settings: str
    """How the server was started and what it does, for the reader."""

    def start(self) -> AbstractContextManager[Running]: ...

    def learn(self, running: Running, pages: Sequence[EventsPage]) -> None:
        """Fetch what a request of the peer needs beforehand, such as cursors; not timed."""
        ...

    def request(self, request: WorkRequest) -> bytes:
        """Return the bytes to send."""
        ...

    def shown(self, request: WorkRequest, body: bytes) -> Shown: ...


def get(target: str, *headers: str) -> bytes:
    """Return a keep-alive GET that accepts no compression."""
    lines = [f"GET {target} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
