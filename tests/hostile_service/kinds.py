"""An answer to be sent, and the kinds of tampering with it, by stage and name."""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final, Literal, NamedTuple

from warehouse.size_limits import PAGE_BYTES

Stage = Literal["rows", "list", "usage", "export", "body", "head", "wire"]
STAGES: Final[tuple[Stage, ...]] = ("rows", "list", "usage", "export", "body", "head", "wire")
"""The order in which stages are applied. `rows` and `list` need JSON, `export` needs CSV."""
Untrue = Literal["content", "absent", "gone"]
"""What is untrue in an answer: other fields, fewer events, a cancelled event."""
RESET = object()
Part = bytes | float | object
"""Bytes to send, seconds to wait, or RESET."""
Row = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """An answer that kinds change. `feed` is the last part of the path, `number` counts requests.

    `length` is the header Content-Length: "" is the true length, None leaves it out.
    """

    feed: str
    number: int
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    length: str | None = ""
    wire: list[Part] | None = None

    def head(self) -> bytes:
        length = str(len(self.body)) if self.length == "" else self.length
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {text}" for name, text in self.headers)]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "replace")

    def set(self, name: str, text: str | None) -> None:
        """Replace a header, or leave it out."""
        self.headers = [pair for pair in self.headers if pair[0].lower() != name.lower()]
        if text is not None:
            self.headers.append((name, text))

    def document(self) -> Row:
        """Return the JSON object of the body, empty if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, document: Any) -> None:
        self.body = json.dumps(document).encode()


Tamper = Callable[[Answer, Random], None]
Table = dict[str, Tamper]


class Kind(NamedTuple):
    """One way in which a service is hostile, or merely broken."""

    name: str
    stage: Stage
    tamper: Tamper
    untrue: Untrue | None = None


def rows(change: Callable[[Row, Random], Any], *, once: bool = False) -> Tamper:
    """Change some rows of lists, and single events; with `once` the first row alone."""

    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        listed = document.get("data")
        if isinstance(listed, list):
            for place, row in enumerate(listed[:1] if once else listed):
                if isinstance(row, dict) and (once or chance.random() < 0.5):
                    listed[place] = change(dict(row), chance)
            answer.write(document)
        elif "id" in document and answer.status == 200 and not once:
            answer.write(change(document, chance))

    return tamper


def put(key: str, value: Any) -> Tamper:
    return rows(lambda row, _: {**row, key: value})


def in_text(text: str) -> Tamper:
    """Insert a text into every text of a row but its keys and instants."""
    texts = ("title", "description", "displayedDate", "name", "symbol", "impactSummary")
    return rows(
        lambda row, _: {
            key: f"{value} {text}" if key in texts and isinstance(value, str) else value
            for key, value in row.items()
        }
    )


def raw(text: str) -> Tamper:
    """Write JSON that Python's writer would not write."""
    mark = rows(lambda row, c: {**row, c.choice(("odd", "impact", "rank", "title")): "@@"})

    def tamper(answer: Answer, chance: Random) -> None:
        mark(answer, chance)
        answer.body = answer.body.replace(b'"@@"', text.encode())

    return tamper


def whole(change: Callable[[Row, Answer, Random], Any]) -> Tamper:
    """Change the object around the rows."""

    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        if isinstance(document.get("data"), list):
            answer.write(change(document, answer, chance))

    return tamper


def meta(key: str, make: Callable[[Answer], Any]) -> Tamper:
    def change(document: Row, answer: Answer, _: Random) -> Row:
        # Another kind of the same day may have put something else there.
        known = document.get("meta")
        return {
            **document,
            "meta": {**(known if isinstance(known, dict) else {}), key: make(answer)},
        }

    return whole(change)


def _total(count: int) -> Tamper:
    return meta("total", lambda _: count)


def data(change: Callable[[list[Any], Random], Any]) -> Tamper:
    return whole(lambda document, _, chance: {**document, "data": change(document["data"], chance)})


def usage(**values: Any) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        if answer.feed == "usage":
            answer.write({**answer.document(), **values})

    return tamper


def export(change: Callable[[list[bytes], Random], Iterable[bytes]]) -> Tamper:
    """Change the lines of the export, including the header."""

    def tamper(answer: Answer, chance: Random) -> None:
        if answer.feed == "export" and answer.status == 200:
            answer.body = b"".join(change(answer.body.splitlines(keepends=True), chance))

    return tamper


def lines(change: Callable[[bytes], bytes], share: float = 0.4) -> Tamper:
    """Change some lines of the export after the header."""
    return export(
        lambda given, chance: [
            *given[:1],
            *(change(line) if chance.random() < share else line for line in given[1:]),
        ]
    )


def body(change: Callable[[bytes], bytes]) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.body = change(answer.body)

    return tamper


def header(name: str, text: str | None) -> Tamper:
    return lambda answer, _: answer.set(name, text)


def many(name: str, count: int, text: str) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.headers += [(name.replace("#", str(n)), text) for n in range(count)]

    return tamper


def length(make: Callable[[int], str | None]) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.length = make(len(answer.body))

    return tamper


_X: Final = b'{"error":{"code":"x","message":"x"}}'


def status(code: int, content: bytes | None = _X, **headers: str) -> Tamper:
    """Answer with another status; `content` None keeps the true body."""

    def tamper(answer: Answer, chance: Random) -> None:
        answer.status = code
        answer.body = answer.body if content is None else content
        for name, text in headers.items():
            answer.set(name.replace("_", "-"), text)

    return tamper


def wire(send: Callable[[Answer, Random], list[Part]]) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.wire = send(answer, chance)

    return tamper


@cache
def bomb() -> bytes:
    """Return 64 MB in a few hundred bytes."""
    return gzip.compress(gzip.compress(b"x" * (64 << 20), 9), 9)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _cut(answer: Answer, chance: Random) -> None:
    answer.body = answer.body[: chance.randint(0, max(0, len(answer.body) - 1))]


def _flip(answer: Answer, chance: Random) -> None:
    flipped = bytearray(answer.body)
    for _ in range(min(len(flipped), 5)):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    answer.body = bytes(flipped)


def _gzip(answer: Answer, chance: Random) -> None:
    answer.body = gzip.compress(answer.body)
    answer.set("Content-Encoding", "gzip")


def _gzip_cut(answer: Answer, chance: Random) -> None:
    _gzip(answer, chance)
    answer.body = answer.body[: chance.randint(1, len(answer.body) - 1)]


def _repeat(listed: list[Any], _: Random) -> list[Any]:
    """Return up to 20,000 rows; large rows only until they exceed what the client reads."""
    beyond = 1 + PAGE_BYTES // len(json.dumps(listed))
    return (listed * min(2_000, beyond))[:20_000]


def _an_error(document: Row, _: Answer, chance: Random) -> Any:
    word = chance.choice(["[/x]", "\x1b]52;c;eA==\x07", "\ud800", "x" * 9_000, {"a": []}, 10**400])
    return {"error": {"message": word}}


def _chunked(answer: Answer, end: bytes) -> list[Part]:
    answer.length = None
    answer.set("Transfer-Encoding", "chunked")
    return [answer.head(), b"%x\r\n%s\r\n" % (len(answer.body), answer.body), end]


def _drip(answer: Answer, chance: Random) -> list[Part]:
    step = max(1, len(answer.body) // 30)
    places = range(0, len(answer.body), step)
    return [answer.head(), *(part for at in places for part in (answer.body[at : at + 1], 0.05))]


_PUT: Final[dict[str, tuple[Any, ...]]] = {
    "id": ("", "x" * 100_000, "a\x00\x1b[2J\r\nb", 2**63, "the-same"),
    "date": ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T25:61:61+99:99"),
    "dateEnd": ("1970-01-01T00:00:00Z",),
    "updatedAt": ("2199-01-01T00:00:00Z",),
    "cancelledAt": ("2099-01-01T00:00:00Z",),
    "impact": (11,),
    "rank": (2**63,),
    "coins": ([[["bitcoin"]]],),
    "odd": (nested(800), "y" * 1_000_000),
    "title": ("t" * 1_000_000,),
}
ROWS: Final[Table] = {
    **{f"{key} {str(value)[:20]!r}": put(key, value) for key in _PUT for value in _PUT[key]},
    # One event only: this process has both what it sends and what it reads in memory.
    "100,000 coins": rows(
        lambda row, _: {**row, "coins": [{"slug": f"c{n}"} for n in range(100_000)]}, once=True
    ),
    "20,000 unknown fields": rows(lambda row, _: row | {f"k{n}": n for n in range(20_000)}),
    "markup": in_text("[/x] [bold]<b>&amp;</b> [link=file:///etc/passwd]"),
    "terminal escapes": in_text("\x1b]52;c;eA==\x07\x1b[2J\x9b31m"),
    "NUL": in_text("a\x00b"),
    "half a surrogate pair": in_text("\ud800 \udfff"),
    "keys in capitals": rows(lambda row, _: {key.upper(): value for key, value in row.items()}),
    "all values null": rows(lambda row, _: dict.fromkeys(row)),
    "rows null": rows(lambda row, _: None),
    "rows without id": rows(lambda row, _: {k: v for k, v in row.items() if k != "id"}),
    **{f"raw {text[:9]}": raw(text) for text in ("NaN", "1e999999", "9" * 5_000, '"x",')},
    "keys that occur twice": body(lambda b: b.replace(b'"title":', b'"title":"another","title":')),
}
LISTS: Final[Table] = {
    **{f"total {n}": _total(n) for n in (2**63, -1, 0, 10_000)},
    "total growing": meta("total", lambda answer: answer.number * 1_000),
    "cursor that repeats": meta("cursor", lambda _: "same"),
    "cursor that alternates": meta("cursor", lambda answer: "ab"[answer.number % 2]),
    "cursor that is always new": meta("cursor", lambda answer: f"c{answer.number}"),
    "cursor of 5 MB": meta("cursor", lambda _: "x" * 5_000_000),
    "cursor an object": meta("cursor", lambda answer: {"at": answer.number}),
    "cursor with controls": meta("cursor", lambda _: "a\r\nHost: evil\x00\ud800"),
    "no meta": whole(lambda document, *_: {"data": document["data"]}),
    "a bare array": whole(lambda document, *_: document["data"]),
    "data null": data(lambda listed, _: None),
    "no rows": data(lambda listed, _: []),
    "rows twice": data(lambda listed, _: listed * 2),
    "rows 2,000 times": data(_repeat),
    "millions of values": data(lambda listed, _: [0] * 2_500_000),
    "some rows left out": data(lambda rows, chance: [r for r in rows if chance.random() < 0.6]),
    "an error under 200": whole(_an_error),
    "a list wrapped twice": whole(lambda document, *_: {"data": document, "meta": {}}),
    "another name for data": whole(lambda d, *_: {"items": d["data"], "meta": d.get("meta")}),
}
USAGE: Final[Table] = {
    "usage negative": usage(used=-5, remaining=-1, limit=-100),
    "usage of 2^63": usage(used=2**63, remaining=2**200, limit=10**300),
    "usage as texts": usage(used="x", remaining="9" * 5_000, limit="1e400"),
    "usage all gone": usage(used=10, remaining=0, limit=10),
    "plan odd": usage(plan="[/x]\x1b[2J" + "p" * 9_000),
    "reset in year 9999": usage(resetAt="9999-12-31T23:59:59-14:00", period={}),
    "rate absurd": usage(rate=2**63, burst=-1),
}
EXPORT: Final[Table] = {
    "wrong quoting": lines(lambda line: b'"' + line),
    "quotes inside": lines(lambda line: line[:9] + b'"' + line),
    "mixed delimiters": lines(lambda line: line.replace(b",", b";")),
    "NULs": lines(lambda line: line[:40] + b"\0" + line[40:]),
    "too many cells": lines(lambda line: b"a,b," + line),
    "no header": export(lambda given, _: given[1:]),
    "header only": export(lambda given, _: given[:1]),
    "columns twice": export(lambda given, _: (line.rstrip() + b"," + line for line in given)),
    "100,000 columns": export(lambda given, _: [b"c," * 100_000 + b"\r\n", *given]),
    "a column not UTF-8": export(lambda given, _: (b"caf\xe9," + line for line in given)),
    "half the rows": export(lambda given, chance: given[: chance.randint(1, len(given))]),
    "a field of 3 MB": export(
        lambda g, _: [*g[:1], *(x.replace(b",", b"," + b"z" * 3_000_000 + b",", 1) for x in g[1:2])]
    ),
    "line ends of CR": lines(lambda line: line.replace(b"\r\n", b"\r"), share=1.0),
    "an open quote": export(lambda given, _: [*given, b'x,"' + b"never closed\r\n" * 99]),
    "JSON lines": export(lambda given, _: [b'{"id":"a"}\n', b'{"id":"b"}\n']),
}
BODIES: Final[Table] = {
    "HTML": body(lambda _: b"<!doctype html><html><h1>502 Bad Gateway</h1>[/x]</html>"),
    "an empty body": body(lambda _: b""),
    "cut at a random byte": _cut,
    "bits flipped": _flip,
    "random bytes": body(lambda b: Random(len(b)).randbytes(2_000)),
    "BOM": body(lambda b: b"\xef\xbb\xbf" + b),
    "UTF-16": body(lambda b: b.decode("utf-8", "replace").encode("utf-16")),
    "Latin-1": body(lambda b: b.replace(b"e", b"\xe9")),
    "a line end more": body(lambda b: b + b"\r\n"),
    "brackets of 8 MB": body(lambda _: b"[" * 8_000_000),
    "gzip that no header names": body(gzip.compress),
    "gzip in two members": body(lambda b: gzip.compress(b[:99]) + gzip.compress(b[99:])),
    "gzip in gzip in gzip": body(lambda b: gzip.compress(gzip.compress(gzip.compress(b)))),
    "a bomb": body(lambda _: bomb()),
    "empty members": body(lambda _: gzip.compress(b"") * 20_000),
}
_HEADERS: Final[dict[str, tuple[str | None, ...]]] = {
    "Content-Encoding": ("gzip", "br"),
    "Content-Type": ("text/html", "image/png", "x" * 9_000, None),
    "Date": (
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 01 Jan 2030 00:00:00 GMT", None),
        *("Sun, 22 Feb 2026 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ),
    "Last-Modified": (
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 25 Mar 2026 00:05:00 GMT", "never", None),
    ),
    "Sunset": ("[/x]\t\xff never",),
    "RateLimit": ("limit=-1, remaining=-1, reset=1e400",),
}
HEADS: Final[Table] = {
    **{
        f"{name} {str(text)[:24]}": header(name, text)
        for name in _HEADERS
        for text in _HEADERS[name]
    },
    "gzip as named": _gzip,
    "gzip cut": _gzip_cut,
    "two Dates": lambda a, _: a.headers.insert(0, ("Date", "Thu, 01 Jan 2026 00:00:00 GMT")),
    "200 cookies": many("Set-Cookie", 200, "c=" + "x" * 300),
    **{f"{count} headers": many("X-#", count, "y") for count in (90, 5_000)},
    "a header of 1 MB": many("X-Large", 1, "z" * 1_000_000),
    "Content-Length too short": length(lambda size: str(max(0, size - 7))),
    "Content-Length too long": length(lambda size: str(size + 7)),
    "Content-Length negative": length(lambda size: "-1"),
    "Content-Length of 5,000 digits": length(lambda size: "9" * 5_000),
    "Content-Length twice": length(lambda size: f"{size}\r\nContent-Length: {size + 1}"),
    "no Content-Length": length(lambda size: None),
    "206": status(206, None, Content_Range="bytes 0-9/99"),
    "304 unasked": status(304, b""),
    "301 elsewhere": status(301, b"", Location="http://169.254.169.254/latest/"),
    **{str(code): status(code) for code in (400, 401, 500)},
    "403 by plan": status(403, b'{"error":{"code":"tier_required","message":"plan"}}'),
    "404 for all": status(404),
    "410 for all": status(410, b'{"cancelledAt":"2026-02-20T00:00:00Z"}'),
    "429": status(429, Retry_After="1"),
    "429 for ever": status(429, Retry_After="9" * 400),
    "429 for the month": status(429, b'{"error":{"code":"quota_exceeded"}}'),
    "503, wait negative": status(503, Retry_After="-5"),
    "503, wait until 9999": status(503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    "an odd error": status(400, b'{"message":"\\ud800[/x]\\u001b]52;c;eA==\\u0007"}'),
}
WIRES: Final[Table] = {
    "reset at once": wire(lambda *_: [RESET]),
    "reset in the head": wire(lambda a, _: [a.head()[:30], RESET]),
    "reset in the body": wire(lambda a, c: [a.head(), a.body[: c.randint(0, len(a.body))], RESET]),
    "chunked without an end": wire(lambda a, _: _chunked(a, b"")),
    "chunked garbage": wire(lambda a, _: _chunked(a, b"zz\r\nnot a size\r\n")),
    "HTTP/0.9": wire(lambda a, _: [a.body]),
    "bytes behind the body": wire(lambda a, _: [a.head(), a.body, b"HTTP/1.1 200 OK\r\n\r\n"]),
    "100 without an end": wire(lambda *_: [b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000]),
    "a head without an end": wire(lambda *_: [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 99]),
    "a body that drips": wire(_drip),
    "a head that drips": wire(lambda *_: [b"HTTP/1.1 200 OK\r\nX-Slow: ", *([b"x", 0.05] * 30)]),
}
_GROUPS: Final[tuple[tuple[Stage, Untrue | None, Table], ...]] = (
    *(("rows", "content", ROWS), ("list", "absent", LISTS), ("usage", None, USAGE)),
    *(("export", "content", EXPORT), ("body", None, BODIES), ("head", None, HEADS)),
    ("wire", None, WIRES),
)
_UNTRUE: Final[dict[str, Untrue]] = {
    **{"header only": "absent", "half the rows": "absent", "cut at a random byte": "absent"},
    **{"bits flipped": "content", "Latin-1": "content", "404 for all": "absent"},
    "410 for all": "gone",
}
KINDS: Final[dict[str, Kind]] = {
    name: Kind(name, stage, tamper, _UNTRUE.get(name, usual))
    for stage, usual, table in _GROUPS
    for name, tamper in table.items()
}
