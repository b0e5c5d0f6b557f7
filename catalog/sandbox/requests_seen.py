"""What the sandbox was asked: its own log of requests, for tests that count them."""

from collections import deque
from datetime import datetime
from threading import Lock
from typing import NamedTuple

_KEPT = 200_000


class SeenRequest(NamedTuple):
    """One request and its answer. The key is not kept, only its plan."""

    at: datetime
    method: str
    path: str
    query: str
    plan: str | None
    status: int
    faults: tuple[str, ...] = ()


class RequestsSeen:
    """The newest requests, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: deque[SeenRequest] = deque(maxlen=_KEPT)

    def add(self, request: SeenRequest) -> None:
        with self._lock:
            self._seen.append(request)

    def all(self) -> list[SeenRequest]:
        with self._lock:
            return list(self._seen)

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()
