"""A service that repeats the key of each request wherever an answer has room for it.

It stands before a real one, on loopback. `told` is what it answers: a good answer with the key in
every part of it, or one of the ways to refuse. The spelling goes round with each answer.
"""

import base64
import csv
import html
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

KEY: Final = 'cnry/5F1c+9e"7b2A=Zq&'
"""With characters that URLs, JSON, CSV and HTML each write in their own way."""


def _each(form: str) -> str:
    return "".join(form.format(ord(item)) for item in KEY)


HOOK: Final = "hook-5d20-canary"
"""A token in the address of alerts, which is in no answer, and must be nowhere either."""
SPELLINGS: Final = {
    "exact": KEY,
    "lower": KEY.lower(),
    "upper": KEY.upper(),
    "url": quote(KEY, safe=""),
    "url, every character": _each("%{:02x}"),
    "json, every character": _each("\\u{:04x}"),
    "html": html.escape(KEY),
    "hex": KEY.encode().hex(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of basic": base64.b64encode(f"u:{KEY}".encode()).decode(),
    "base64 for urls": base64.urlsafe_b64encode(f"k={KEY}&".encode()).decode(),
}
PAGE: Final = 20
"""Rows of a page; no list has more than two, so that a run takes no time."""
TRACES: Final = tuple(
    part.lower().encode()
    for part in (
        *(
            HOOK,
            "cnry/5f1c+9e",
            "7b2a=zq",
            *(SPELLINGS[item][2:-2] for item in ("url", "html", "hex")),
        ),
        *(SPELLINGS["url, every character"][3:-3], SPELLINGS["json, every character"][6:-6]),
        *(SPELLINGS[spelling][4:-4].strip("=") for spelling in SPELLINGS if "base64" in spelling),
    )
)
"""Parts of each spelling, by which it is known again in any text."""
HEADERS: Final = (
    *("Content-Type", "Sunset", "Deprecation", "ETag", "Location", "Set-Cookie", "Server"),
    *("X-Request-Id", "Content-Disposition", "Cache-Control", "Link", "Warning", "X-Plan"),
    *("X-RateLimit-Remaining", "Via", "WWW-Authenticate"),
)


def traces_in(data: bytes) -> list[bytes]:
    """Return by what the key can be known in some bytes."""
    lowered = data.lower()
    return [trace for trace in TRACES if trace in lowered]


@dataclass(frozen=True)
class Asked:
    """A request as it came, how the key is spelled in its answer, and a good answer to it."""

    path: str
    said: str
    status: int
    body: bytes
    is_json: bool
    goes_on: bool


@dataclass
class Answer:
    """An answer. `reason` None is the usual one; `cut` bytes less than promised are sent."""

    status: int = 200
    body: bytes = b""
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    first_line: bytes = b""


def repeated(asked: Asked) -> Answer:
    """Answer well, with the key in the data, in unknown fields, in `meta` and in the cursor."""
    said = asked.said
    if not asked.is_json:
        table = io.StringIO(newline="")
        rows = islice(csv.reader(io.StringIO(asked.body.decode(), newline="")), 2 * PAGE + 1)
        csv.writer(table, quoting=csv.QUOTE_ALL).writerows([*row, said] for row in rows)
        return Answer(asked.status, f"{table.getvalue()}{said}\r\n".encode())
    value = json.loads(asked.body)
    rows = value["data"] if isinstance(value.get("data"), list) else []
    del rows[PAGE:]
    for row in rows:
        row |= {"unknown": said, said: {"more": [said]}}
        for name in ("title", "description", "name"):
            if name in row:
                row[name] = f"{row[name]} {said}"
    value |= {"note": said, said: said}
    if isinstance(value.get("meta"), dict):
        value["meta"] |= {"said": said, "total": min(value["meta"]["total"], 2 * PAGE)}
        if value["meta"].get("cursor"):
            value["meta"]["cursor"] = None if asked.goes_on else f"{value['meta']['cursor']}~{said}"
    return Answer(asked.status, json.dumps(value).replace("\\\\u", "\\u").encode())


def _error(status: int, *, words: str = "{}") -> Callable[[Asked], Answer]:
    def tell(asked: Asked) -> Answer:
        said = words.format(asked.said)
        error = {"code": said, "message": f"no access for {said}", "requestId": said}
        body = json.dumps({"error": error, said: said}).replace("\\\\u", "\\u")
        return Answer(status, body.encode())

    return tell


def _page(status: int) -> Callable[[Asked], Answer]:
    return lambda asked: Answer(
        status, f"<html><a href='/?key={asked.said}'>{asked.said}</a></html>".encode()
    )


TELLINGS: Final[dict[str, Callable[[Asked], Answer]]] = {
    "good": repeated,
    **{f"error {status}": _error(status) for status in (200, 400, 401, 403, 404, 410, 422, 500)},
    "month gone": _error(429, words="Limit Exceeded {}"),
    "page": _page(200),
    "page 503": _page(503),
    "redirect": lambda asked: Answer(
        302, headers={"Location": f"http://127.0.0.1:9/?k={asked.said}"}
    ),
    "reason": lambda asked: Answer(418, asked.said.encode(), reason=f"Teapot {asked.said}"),
    "cut": lambda asked: Answer(200, repeated(asked).body + asked.said.encode() * 9, cut=700),
    "nothing like it": lambda asked: Answer(200, asked.said.encode()),
    "odd head": lambda asked: Answer(first_line=f"HTTP/9.{asked.said} 200 {asked.said}".encode()),
    "odd field": lambda asked: Answer(200, asked.body, headers={asked.said: asked.said}),
    "plan": lambda asked: Answer(
        200,
        json.dumps({"plan": asked.said, "used": 1, "limit": None, asked.said: asked.said}).encode(),
    ),
    "waiting": lambda asked: Answer(503, b"{}", headers={"Retry-After": asked.said}),
    "encoding": lambda asked: Answer(200, b"x", headers={"Content-Encoding": asked.said}),
}


class RepeatingService:
    """`tell` names the answer, by the path's last part; the rest is told as `usual`."""

    def __init__(self, upstream: str, key: str) -> None:
        self.usual = "good"
        self.tell: dict[str, str] = {}
        self.asked = 0
        self._numbers = count()
        self._http = httpx.Client(
            base_url=upstream,
            headers={"x-api-key": key, "Accept-Encoding": "identity"},
            trust_env=False,
            timeout=60,
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
        self.asked += 1
        said = list(SPELLINGS.values())[next(self._numbers) % len(SPELLINGS)]
        url = urlsplit(target)
        params = [(name, value.partition("~")[0]) for name, value in parse_qsl(url.query)]
        good = self._http.get(url.path, params=params)
        is_json = "json" in good.headers.get("content-type", "")
        asked = Asked(
            url.path, said, good.status_code, good.content, is_json, "cursor" in url.query
        )
        if url.path.endswith("/usage") and "usage" not in self.tell:
            # Beside the known names alone, so that the plan and the month can be read.
            answer = Answer(200, json.dumps({**good.json(), "owner": said, said: said}).encode())
        else:
            answer = TELLINGS[self.tell.get(url.path.rpartition("/")[2], self.usual)](asked)
        kept = {
            name: good.headers[name] for name in ("date", "last-modified") if name in good.headers
        }
        answer.headers = {
            **kept,
            **{name: said for name in HEADERS},
            f"X-{quote(said, safe='')}": said,
            **answer.headers,
        }
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = service._answer(self.path)
                reason = answer.reason or "OK"
                lines = [answer.first_line or f"HTTP/1.1 {answer.status} {reason}".encode()]
                lines += [f"{name}: {value}".encode() for name, value in answer.headers.items()]
                lines += [f"Content-Length: {len(answer.body)}".encode(), b"Connection: close"]
                body = answer.body[: len(answer.body) - answer.cut]
                self.wfile.write(b"\r\n".join([*lines, b"", b""]) + body)
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        return Handler
