"""What a server in the run is, as the load generator sees it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.server.asked import Asked, PageAsked
from bench.server.process import Running


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer says, for comparison: ids or slugs in order, and the total of a list."""

    ids: tuple[str, ...]
    total: int | None = None


class Peer(Protocol):
    name: str
    settings: str
    """How it was started and what it does, for the reader."""

    def start(self) -> AbstractContextManager[Running]: ...

    def learn(self, running: Running, pages: Sequence[PageAsked]) -> None:
        """Fetch what a request of the peer needs beforehand, such as cursors; not timed."""
        ...

    def request(self, asked: Asked) -> bytes:
        """Return the bytes to send."""
        ...

    def shown(self, asked: Asked, body: bytes) -> Shown: ...


def get(target: str, *headers: str) -> bytes:
    """Return a keep-alive GET that accepts no compression."""
    lines = [f"GET {target} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
