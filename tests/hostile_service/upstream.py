"""A service on loopback that requests from the true one, changes the answer, and sends it raw."""

import csv
import io
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.hangs import HANGS_AFTER_S
from tests.hostile_service.kinds import STAGES, Answer, Kind

Query = tuple[tuple[str, str], ...]
TrueAnswer = tuple[int, list[tuple[str, str]], bytes]
_OWN = ("connection", "content-length", "transfer-encoding", "server")
COINS_NAMED = "ether"
"""The catalog has few coins: the requested coins are those with this in their name."""
CANCELLED_SINCE = datetime(2018, 2, 20, tzinfo=UTC)


@dataclass
class Upstream:
    """`now` is the time of the true answers; `kinds` tamper with a share of the answers.

    `untrue` has what was untrue in the answers, `titles` the true titles of each event. `failure`
    is an error of this service, not of the code under test.
    """

    true_url: str
    key: str
    now: datetime = CANCELLED_SINCE
    kinds: Sequence[Kind] = ()
    share: float = 1.0
    chance: Random = field(default_factory=lambda: Random(0))
    base_url: str = ""
    requests: int = 0
    failure: Exception | None = None
    untrue: set[str] = field(default_factory=set)
    titles: dict[str, set[str]] = field(default_factory=dict)
    true: dict[tuple[datetime, str, Query], TrueAnswer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        headers = {"x-api-key": self.key, "Accept-Encoding": "identity"}
        self._http = httpx.Client(base_url=self.true_url, headers=headers, timeout=HANGS_AFTER_S)
        self._lock = threading.Lock()

    def tampered(self, target: str) -> Answer:
        """Return the changed answer to a request."""
        parts = urlsplit(target)
        status, headers, body = self._true(parts.path, tuple(parse_qsl(parts.query)))
        feed = parts.path.rpartition("/")[2]
        answer = Answer(feed, self.requests, status, list(headers), body)
        self.requests += 1
        for stage in STAGES:
            for kind in self.kinds:
                if kind.stage == stage and self.chance.random() < self.share:
                    kind.tamper(answer, self.chance)
                    self.untrue |= {kind.untrue} if kind.untrue else set()
        return answer

    def rows(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return the true rows of a list or the export."""
        _, _, body = self._true(path, tuple(query.items()))
        if path.endswith("export"):
            return list(csv.DictReader(io.StringIO(body.decode(), newline="")))
        found: list[dict[str, Any]] = json.loads(body)["data"]
        return found

    def _true(self, path: str, query: Query) -> tuple[int, list[tuple[str, str]], bytes]:
        now = self.now
        query = _narrowed(path, query)
        known = self.true.get((now, path, query))
        if known is None:
            at = {"Sandbox-Now": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
            answer = self._http.get(path, params=query, headers=at)
            kept = [pair for pair in answer.headers.multi_items() if pair[0] not in _OWN]
            known = self.true[now, path, query] = answer.status_code, kept, answer.content
            self._learn(path, answer)
        return known

    def _learn(self, path: str, answer: httpx.Response) -> None:
        if answer.status_code != 200 or "/events" not in path:
            return
        if path.endswith("export"):
            rows: list[Any] = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        else:
            rows = answer.json().get("data") or [answer.json()]
        for row in rows:
            if "title" in row:
                self.titles.setdefault(row["id"], set()).add(row["title"])

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError), self._lock:
                connection.settimeout(HANGS_AFTER_S)
                try:
                    self._answer(connection)
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001 - raised at the end of the day
                    self.failure = error

    def _answer(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65_536)
            if not received:
                return
            head += received
        answer = self.tampered(head.split(b" ", 2)[1].decode("latin-1"))
        connection.sendall(answer.head() + answer.body)
        connection.shutdown(socket.SHUT_WR)


@contextmanager
def serving(upstream: Upstream) -> Iterator[Upstream]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=upstream.serve, args=(listener,), daemon=True).start()
        yield upstream
        listener.shutdown(socket.SHUT_RDWR)


def _narrowed(path: str, query: Query) -> Query:
    """Return the query for the true service, with a small catalog on every path."""
    if path.endswith("/coins"):
        return (*query, ("q", COINS_NAMED))
    if path.endswith("/cancellations"):
        kept = [pair for pair in query if pair[0] != "since"]
        return (*kept, ("since", f"{CANCELLED_SINCE:%Y-%m-%dT%H:%M:%SZ}"))
    return query
