"""A service that repeats the key of each request in every part of its answers.

It is a proxy before a real one, on loopback. ANSWERS has its kinds of answer: a good one with the
key in every part, or a refusal. Each answer uses the next spelling of the key.
"""

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from tests.hangs import HANGS_AFTER_S

KEY: Final = "cnry/5F1c+9e7b2A=Zq"
"""It has characters that a URL escapes, and JSON, CSV and HTML do not."""
HOOK: Final = "hook-5d20-canary"
"""A token in the address of alerts. It is in no answer, and must be stored nowhere either."""
PUSH_SECRETS: Final = ("whsec_push-71c4-canary-one", "push-9e02-canary-the-older-secret")
"""The secrets of a webhook endpoint, while one rotates. They are stored nowhere either."""
SPELLINGS: Final = {"exact": KEY, "url": quote(KEY, safe="")}
PAGE: Final = 20
"""Rows of a page. No list has more than two pages, so that a run is quick."""
TRACES: Final = tuple(
    part.lower().encode()
    for part in (HOOK, "push-71c4", "push-9e02", KEY[:12], KEY[-9:], SPELLINGS["url"][2:-2])
)
"""Parts of each secret, by which it is recognised in any text."""
HEADERS: Final = (
    *("Content-Type", "Sunset", "Deprecation", "ETag", "Location", "Set-Cookie", "Server"),
    *("X-Request-Id", "Content-Disposition", "Cache-Control", "Link", "Warning", "X-Plan"),
    *("X-RateLimit-Remaining", "Via", "WWW-Authenticate"),
)


def traces_in(data: bytes) -> list[bytes]:
    """Return the parts of the key that some bytes contain."""
    lowered = data.lower()
    return [trace for trace in TRACES if trace in lowered]


@dataclass(frozen=True)
class Received:
    """A received request, the spelling of the key in its answer, and a good answer to it."""

    path: str
    spelling: str
    status: int
    body: bytes
    is_json: bool
    is_next_page: bool


@dataclass
class Answer:
    """An answer. `reason` None means "OK"; the body sent is `cut` bytes shorter than announced."""

    status: int = 200
    body: bytes = b""
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0


def repeated(received: Received) -> Answer:
    """Return a good answer with the key in data, unknown fields, `meta` and the cursor."""
    spelling = received.spelling
    if not received.is_json:
        table = io.StringIO(newline="")
        rows = islice(csv.reader(io.StringIO(received.body.decode(), newline="")), 2 * PAGE + 1)
        csv.writer(table, quoting=csv.QUOTE_ALL).writerows([*row, spelling] for row in rows)
        return Answer(received.status, f"{table.getvalue()}{spelling}\r\n".encode())
    value = json.loads(received.body)
    rows = value["data"] if isinstance(value.get("data"), list) else []
    del rows[PAGE:]
    for row in rows:
        row |= {"unknown": spelling, spelling: {"more": [spelling]}}
        for name in ("title", "description", "name"):
            if name in row:
                row[name] = f"{row[name]} {spelling}"
    value |= {"note": spelling, spelling: spelling}
    if isinstance(value.get("meta"), dict):
        value["meta"] |= {"said": spelling, "total": min(value["meta"]["total"], 2 * PAGE)}
        if value["meta"].get("cursor"):
            value["meta"]["cursor"] = (
                None if received.is_next_page else f"{value['meta']['cursor']}~{spelling}"
            )
    return Answer(received.status, json.dumps(value).encode())


def _error(status: int) -> Callable[[Received], Answer]:
    def answer(received: Received) -> Answer:
        spelling = received.spelling
        error = {"code": spelling, "message": f"no access for {spelling}", "requestId": spelling}
        return Answer(status, json.dumps({"error": error, spelling: spelling}).encode())

    return answer


ANSWERS: Final[dict[str, Callable[[Received], Answer]]] = {
    "good": repeated,
    **{f"error {status}": _error(status) for status in (200, 403)},
    "page": lambda received: Answer(
        200, f"<html><a href='/?key={received.spelling}'>{received.spelling}</a></html>".encode()
    ),
    "cut": lambda received: Answer(
        200, repeated(received).body + received.spelling.encode() * 9, cut=700
    ),
    "nothing like it": lambda received: Answer(200, received.spelling.encode()),
    "plan": lambda received: Answer(
        200,
        json.dumps(
            {
                "plan": received.spelling,
                "used": 1,
                "limit": None,
                received.spelling: received.spelling,
            }
        ).encode(),
    ),
}


class RepeatingService:
    """`answers` has the name of an answer by the path's last part; the rest is good."""

    def __init__(self, upstream: str, key: str) -> None:
        self.answers: dict[str, str] = {}
        self.request_count = 0
        self._numbers = count()
        self._http = httpx.Client(
            base_url=upstream,
            headers={"x-api-key": key, "Accept-Encoding": "identity"},
            trust_env=False,
            timeout=HANGS_AFTER_S,
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator["RepeatingService"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._http.close()
            thread.join()

    def _answer(self, target: str) -> Answer:
        self.request_count += 1
        spelling = list(SPELLINGS.values())[next(self._numbers) % len(SPELLINGS)]
        url = urlsplit(target)
        params = [(name, value.partition("~")[0]) for name, value in parse_qsl(url.query)]
        good = self._http.get(url.path, params=params)
        is_json = "json" in good.headers.get("content-type", "")
        received = Received(
            url.path, spelling, good.status_code, good.content, is_json, "cursor" in url.query
        )
        if url.path.endswith("/usage") and "usage" not in self.answers:
            # Only beside the known names, so that plan and usage stay readable.
            answer = Answer(
                200, json.dumps({**good.json(), "owner": spelling, spelling: spelling}).encode()
            )
        else:
            answer = ANSWERS[self.answers.get(url.path.rpartition("/")[2], "good")](received)
        kept = {
            name: good.headers[name] for name in ("date", "last-modified") if name in good.headers
        }
        answer.headers = {
            **kept,
            **{name: spelling for name in HEADERS},
            f"X-{quote(spelling, safe='')}": spelling,
            **answer.headers,
        }
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = service._answer(self.path)
                reason = answer.reason or "OK"
                lines = [f"HTTP/1.1 {answer.status} {reason}".encode()]
                lines += [f"{name}: {value}".encode() for name, value in answer.headers.items()]
                lines += [f"Content-Length: {len(answer.body)}".encode(), b"Connection: close"]
                body = answer.body[: len(answer.body) - answer.cut]
                self.wfile.write(b"\r\n".join([*lines, b"", b""]) + body)
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        return Handler
