"""An answer to be sent, and the kinds of tampering with it, by stage and name."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final, Literal, NamedTuple

from warehouse.size_limits import PAGE_BYTES

Stage = Literal["rows", "list", "body", "head"]
STAGES: Final[tuple[Stage, ...]] = ("rows", "list", "body", "head")
"""The order in which stages are applied. `rows` and `list` need JSON."""
Untrue = Literal["content", "absent", "gone"]
"""What is untrue in an answer: other fields, fewer events, a cancelled event."""
Row = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """An answer that kinds change. `feed` is the end of the path, `number` counts requests."""

    feed: str
    number: int
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {text}" for name, text in self.headers)]
        lines.append(f"Content-Length: {len(self.body)}")
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


def body(change: Callable[[bytes], bytes]) -> Tamper:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.body = change(answer.body)

    return tamper


def header(name: str, text: str | None) -> Tamper:
    return lambda answer, _: answer.set(name, text)


_X: Final = b'{"error":{"code":"x","message":"x"}}'


def status(code: int, content: bytes | None = _X, **headers: str) -> Tamper:
    """Answer with another status; `content` None keeps the true body."""

    def tamper(answer: Answer, chance: Random) -> None:
        answer.status = code
        answer.body = answer.body if content is None else content
        for name, text in headers.items():
            answer.set(name.replace("_", "-"), text)

    return tamper


@cache
def bomb() -> bytes:
    """Return 64 MB in a few hundred bytes."""
    return gzip.compress(gzip.compress(b"x" * (64 << 20), 9), 9)


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


def _repeat(listed: list[Any], _: Random) -> list[Any]:
    """Return up to 20,000 rows; large rows only until they exceed what the client reads."""
    beyond = 1 + PAGE_BYTES // len(json.dumps(listed))
    return (listed * min(2_000, beyond))[:20_000]


def _an_error(document: Row, _: Answer, chance: Random) -> Any:
    word = chance.choice(["[/x]", "\x1b]52;c;eA==\x07", "\ud800", "x" * 9_000, {"a": []}, 10**400])
    return {"error": {"message": word}}


_PUT: Final[dict[str, tuple[Any, ...]]] = {
    "id": ("", "x" * 100_000, "a\x00\x1b[2J\r\nb", 2**63, "the-same"),
    "date": ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2018-02-30T25:61:61+99:99"),
    "dateEnd": ("1970-01-01T00:00:00Z",),
    "updatedAt": ("2199-01-01T00:00:00Z",),
    "cancelledAt": ("2099-01-01T00:00:00Z",),
    "impact": (11,),
    "rank": (2**63,),
    "coins": ([[["bitcoin"]]],),
    "odd": ("y" * 1_000_000,),
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
        *("Thu, 22 Feb 2018 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ),
    "Last-Modified": (
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 25 Mar 2018 00:05:00 GMT", "never", None),
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
    "two Dates": lambda a, _: a.headers.insert(0, ("Date", "Mon, 01 Jan 2018 00:00:00 GMT")),
    "206": status(206, None, Content_Range="bytes 0-9/99"),
    "304 unasked": status(304, b""),
    "301 elsewhere": status(301, b"", Location="http://169.254.169.254/latest/"),
    **{str(code): status(code) for code in (400, 401, 500)},
    "403 by plan": status(403, b'{"error":{"code":"tier_required","message":"plan"}}'),
    "404 for all": status(404),
    "410 for all": status(410, b'{"cancelledAt":"2018-02-20T00:00:00Z"}'),
    "429": status(429, Retry_After="1"),
    "429 for ever": status(429, Retry_After="9" * 400),
    "429 for the month": status(429, b'{"error":{"code":"quota_exceeded"}}'),
    "503, wait negative": status(503, Retry_After="-5"),
    "503, wait until 9999": status(503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    "an odd error": status(400, b'{"message":"\\ud800[/x]\\u001b]52;c;eA==\\u0007"}'),
}
_GROUPS: Final[tuple[tuple[Stage, Untrue | None, Table], ...]] = (
    *(("rows", "content", ROWS), ("list", "absent", LISTS)),
    *(("body", None, BODIES), ("head", None, HEADS)),
)
_UNTRUE: Final[dict[str, Untrue]] = {
    **{"cut at a random byte": "absent", "bits flipped": "content", "Latin-1": "content"},
    **{"404 for all": "absent", "410 for all": "gone"},
}
KINDS: Final[dict[str, Kind]] = {
    name: Kind(name, stage, tamper, _UNTRUE.get(name, usual))
    for stage, usual, table in _GROUPS
    for name, tamper in table.items()
}
