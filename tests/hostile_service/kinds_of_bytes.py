"""Kinds of tampering with bytes: exports, encodings, heads, statuses, and the connection."""

import gzip
from functools import cache
from random import Random
from typing import Any

from tests.hostile_service.answers import (
    RESET,
    Answer,
    Kind,
    Part,
    body_kind,
    export_kind,
    header_kind,
    status_kind,
    wire_kind,
)

HTML = b"<!doctype html><html><body><h1>502 Bad Gateway</h1>[/x]</body></html>"


@cache
def bomb() -> bytes:
    """Return 64 MB in a few hundred bytes."""
    return gzip.compress(gzip.compress(b"x" * (64 << 20), 9), 9)


def _in_some(lines: list[bytes], chance: Random, change: Any) -> list[bytes]:
    head, *rows = lines or [b""]
    return [head, *(change(row) if chance.random() < 0.4 else row for row in rows)]


def _half(lines: list[bytes], chance: Random) -> list[bytes]:
    return lines[: chance.randint(1, len(lines))]


def _field_of(size: int) -> Any:
    return lambda row: row.replace(b",", b"," + b"z" * size + b",", 1)


EXPORT = (
    export_kind("wrong quoting", lambda lines, c: _in_some(lines, c, lambda r: b'"' + r)),
    export_kind("quotes inside", lambda lines, c: _in_some(lines, c, lambda r: r[:9] + b'"' + r)),
    export_kind("mixed delimiters", lambda ls, c: _in_some(ls, c, lambda r: r.replace(b",", b";"))),
    export_kind("NULs", lambda lines, c: _in_some(lines, c, lambda r: r[:40] + b"\0" + r[40:])),
    export_kind("too many cells", lambda lines, c: _in_some(lines, c, lambda r: b"a,b," + r)),
    export_kind("no header", lambda lines, c: lines[1:]),
    export_kind("header only", lambda lines, c: lines[:1], "absent"),
    export_kind("columns twice", lambda ls, c: (line.rstrip() + b"," + line for line in ls)),
    export_kind("100,000 columns", lambda ls, c: [b"c," * 100_000 + b"\r\n", *ls]),
    export_kind("a column not UTF-8", lambda ls, c: (b"caf\xe9," + line for line in ls)),
    export_kind("half the rows", _half, "absent"),
    export_kind("a field of 3 MB", lambda ls, c: [*ls[:1], *map(_field_of(3_000_000), ls[1:2])]),
    export_kind("line ends of CR", lambda ls, c: (line.replace(b"\r\n", b"\r") for line in ls)),
    export_kind("an open quote", lambda ls, c: [*ls, b'x,"' + b"never closed\r\n" * 99]),
    export_kind("JSON lines", lambda ls, c: [b'{"id":"a"}\n', b'{"id":"b"}\n']),
)


def _cut(body: bytes, chance: Random) -> bytes:
    return body[: chance.randint(0, max(0, len(body) - 1))]


def _flipped(body: bytes, chance: Random) -> bytes:
    flipped = bytearray(body)
    for _ in range(min(len(flipped), 5)):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def _gzip_named(answer: Answer, chance: Random) -> None:
    answer.body = gzip.compress(answer.body)
    answer.set("Content-Encoding", "gzip")


def _gzip_cut(answer: Answer, chance: Random) -> None:
    _gzip_named(answer, chance)
    answer.body = answer.body[: chance.randint(1, len(answer.body) - 1)]


BODIES = (
    body_kind("HTML", lambda body, _: HTML),
    body_kind("an empty body", lambda body, _: b""),
    body_kind("cut at a random byte", _cut, "absent"),
    body_kind("bits flipped", _flipped, "content"),
    body_kind("random bytes", lambda body, chance: chance.randbytes(2_000)),
    body_kind("BOM", lambda body, _: b"\xef\xbb\xbf" + body),
    body_kind("UTF-16", lambda body, _: body.decode("utf-8", "replace").encode("utf-16")),
    body_kind("Latin-1", lambda body, _: body.replace(b"e", b"\xe9"), "content"),
    body_kind("a line end more", lambda body, _: body + b"\r\n"),
    body_kind("brackets of 8 MB", lambda body, _: b"[" * 8_000_000),
    body_kind("gzip that no header names", lambda body, _: gzip.compress(body)),
    body_kind("gzip in two members", lambda b, _: gzip.compress(b[:99]) + gzip.compress(b[99:])),
    body_kind("gzip in gzip in gzip", lambda b, _: gzip.compress(gzip.compress(gzip.compress(b)))),
    body_kind("a bomb", lambda body, _: bomb()),
    body_kind("empty members", lambda body, _: gzip.compress(b"") * 20_000),
    Kind("gzip as named", "head", _gzip_named),
    Kind("gzip cut", "head", _gzip_cut),
    header_kind("gzip that is none", "Content-Encoding", lambda _: "gzip"),
    header_kind("br that is none", "Content-Encoding", lambda _: "br"),
)


def _many(name: str, count: int, text: str) -> Kind:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.headers += [(name.replace("#", str(n)), text) for n in range(count)]

    return Kind(f"{count} headers {name}", "head", tamper)


def _two_dates(answer: Answer, chance: Random) -> None:
    answer.headers.insert(0, ("Date", "Thu, 01 Jan 2026 00:00:00 GMT"))


def _length(name: str, make: Any) -> Kind:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.length = make(len(answer.body))

    return Kind(name, "head", tamper)


HEADS = (
    *(
        header_kind(f"content type {text[:24]!r}", "Content-Type", lambda _, text=text: text)
        for text in ("text/html", "image/png", "x" * 9_000)
    ),
    header_kind("no content type", "Content-Type", lambda _: None),
    *(
        header_kind(f"Date {text!r}", "Date", lambda _, text=text: text)
        for text in (
            *("Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"),
            *("Sun, 22 Feb 2026 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
        )
    ),
    header_kind("no Date", "Date", lambda _: None),
    Kind("two Dates", "head", _two_dates),
    *(
        header_kind(f"Last-Modified {text!r}", "Last-Modified", lambda _, text=text: text)
        for text in ("Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 25 Mar 2026 00:05:00 GMT", "never")
    ),
    header_kind("no Last-Modified", "Last-Modified", lambda _: None),
    header_kind("Sunset odd", "Sunset", lambda _: "[/x]\t\xff never"),
    header_kind("rate negative", "RateLimit", lambda _: "limit=-1, remaining=-1, reset=1e400"),
    _many("Set-Cookie", 200, "c=" + "x" * 300),
    _many("X-#", 90, "y"),
    _many("X-#", 5_000, "y"),
    _many("X-Large", 1, "z" * 1_000_000),
    _length("Content-Length too short", lambda size: str(max(0, size - 7))),
    _length("Content-Length too long", lambda size: str(size + 7)),
    _length("Content-Length negative", lambda size: "-1"),
    _length("Content-Length of 5,000 digits", lambda size: "9" * 5_000),
    _length("Content-Length twice", lambda size: f"{size}\r\nContent-Length: {size + 1}"),
    _length("no Content-Length", lambda size: None),
)
REDIRECT = "http://169.254.169.254/latest/"
STATUSES = (
    status_kind("206", 206, None, Content_Range="bytes 0-9/99"),
    status_kind("304 unasked", 304, b""),
    status_kind("301 elsewhere", 301, b"", Location=REDIRECT),
    status_kind("400", 400),
    status_kind("401", 401),
    status_kind("403 by plan", 403, b'{"error":{"code":"tier_required","message":"plan"}}'),
    status_kind("404 for all", 404, untrue="absent"),
    status_kind("410 for all", 410, b'{"cancelledAt":"2026-02-20T00:00:00Z"}', untrue="gone"),
    status_kind("429", 429, Retry_After="1"),
    status_kind("429 for ever", 429, Retry_After="9" * 400),
    status_kind("429 for the month", 429, b'{"error":{"code":"quota_exceeded"}}'),
    status_kind("500", 500),
    status_kind("503, wait negative", 503, Retry_After="-5"),
    status_kind("503, wait until 9999", 503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    status_kind("an odd error", 400, b'{"message":"\\ud800[/x]\\u001b]52;c;eA==\\u0007"}'),
)


def _plain(answer: Answer) -> tuple[bytes, bytes]:
    return answer.head(), answer.body


def _chunked(answer: Answer, end: bytes) -> list[Part]:
    answer.length = None
    answer.set("Transfer-Encoding", "chunked")
    body = answer.body
    return [answer.head(), b"%x\r\n%s\r\n" % (len(body), body), end]


def _reset_inside(answer: Answer, chance: Random) -> list[Part]:
    head, body = _plain(answer)
    return [head, body[: chance.randint(0, len(body))], RESET]


def _dripped(answer: Answer, chance: Random) -> list[Part]:
    head, body = _plain(answer)
    parts: list[Part] = [head]
    for place in range(0, len(body), max(1, len(body) // 30)):
        parts += [body[place : place + 1], 0.05]
    return parts


def _head_dripped(answer: Answer, chance: Random) -> list[Part]:
    return [b"HTTP/1.1 200 OK\r\nX-Slow: ", *([b"x", 0.05] * 30)]


WIRES = (
    wire_kind("reset at once", lambda *_: [RESET]),
    wire_kind("reset in the head", lambda a, _: [a.head()[:30], RESET]),
    wire_kind("reset in the body", _reset_inside),
    wire_kind("chunked without an end", lambda a, _: _chunked(a, b"")),
    wire_kind("chunked garbage", lambda a, _: _chunked(a, b"zz\r\nnot a size\r\n")),
    wire_kind("HTTP/0.9", lambda a, _: [a.body]),
    wire_kind("bytes behind the body", lambda a, _: [a.head(), a.body, b"HTTP/1.1 200 OK\r\n\r\n"]),
    wire_kind("100 without an end", lambda *_: [b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000]),
    wire_kind("a head without an end", lambda *_: [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 99]),
    wire_kind("a body that drips", _dripped),
    wire_kind("a head that drips", _head_dripped),
)
