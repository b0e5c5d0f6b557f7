"""An answer to be sent, and the kinds of tampering with it: a name, a stage and a function.

Belongs here: what all kinds share. Does not: the kinds (kinds_of_*.py), the sockets
(upstream.py).
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

Stage = Literal["rows", "list", "usage", "export", "body", "head", "wire"]
"""The order in which stages are applied. `rows` and `list` need JSON, `export` needs CSV."""
STAGES: tuple[Stage, ...] = ("rows", "list", "usage", "export", "body", "head", "wire")
Untrue = Literal["content", "absent", "gone"]
"""What is untrue in an answer: other fields, fewer events, a cancelled event."""
RESET = object()
Part = bytes | float | object
"""Bytes to send, seconds to wait, or RESET."""


@dataclass(slots=True)
class Answer:
    """An answer that kinds change. `feed` is the last part of the path."""

    feed: str
    number: int
    """How many requests were received before."""
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    length: str | None = ""
    """The header Content-Length: "" is the true length, None leaves it out."""
    wire: list[Part] | None = None
    values: dict[str, Any] = field(default_factory=dict)

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

    def document(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def write(self, document: Any) -> None:
        self.body = json.dumps(document).encode()


Tamper = Callable[[Answer, Random], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a service is hostile, or merely broken."""

    name: str
    stage: Stage
    tamper: Tamper
    untrue: Untrue | None = None


def rows_kind(name: str, change: Callable[[dict[str, Any], Random], Any]) -> Kind:
    """Return a kind that changes some rows of lists and single events."""

    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            rows = document["data"]
            for place, row in enumerate(rows):
                if isinstance(row, dict) and chance.random() < 0.5:
                    changed = change(dict(row), chance)
                    rows[place] = changed
            answer.write(document)
        elif isinstance(document, dict) and "id" in document and answer.status == 200:
            answer.write(change(document, chance))

    return Kind(name, "rows", tamper, "content")


def list_kind(name: str, change: Callable[[dict[str, Any], Answer, Random], Any]) -> Kind:
    """Return a kind that changes the object around the rows."""

    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            answer.write(change(document, answer, chance))

    return Kind(name, "list", tamper, "absent")


def meta_kind(name: str, key: str, make: Callable[[Answer, Random], Any]) -> Kind:
    """Return a kind that changes one value of `meta`."""

    def change(document: dict[str, Any], answer: Answer, chance: Random) -> Any:
        meta = document.get("meta")
        # Another kind of the same day may have put something else there.
        document["meta"] = {**(meta if isinstance(meta, dict) else {}), key: make(answer, chance)}
        return document

    return list_kind(name, change)


def usage_kind(name: str, values: dict[str, Any]) -> Kind:
    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        if answer.feed == "usage" and isinstance(document, dict):
            answer.write({**document, **values})

    return Kind(name, "usage", tamper)


def export_kind(
    name: str, change: Callable[[list[bytes], Random], Iterable[bytes]], untrue: Untrue = "content"
) -> Kind:
    """Return a kind that changes the lines of the export, including the header."""

    def tamper(answer: Answer, chance: Random) -> None:
        if answer.feed == "export" and answer.status == 200:
            answer.body = b"".join(change(answer.body.splitlines(keepends=True), chance))

    return Kind(name, "export", tamper, untrue)


def body_kind(
    name: str, change: Callable[[bytes, Random], bytes], untrue: Untrue | None = None
) -> Kind:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.body = change(answer.body, chance)

    return Kind(name, "body", tamper, untrue)


def header_kind(name: str, header: str, make: Callable[[Random], str | None]) -> Kind:
    return Kind(name, "head", lambda answer, chance: answer.set(header, make(chance)))


def status_kind(
    name: str,
    status: int,
    body: bytes | None = b'{"error":{"code":"x","message":"x"}}',
    untrue: Untrue | None = None,
    **headers: str,
) -> Kind:
    """Return a kind that answers with another status; `body` None keeps the true one."""

    def tamper(answer: Answer, chance: Random) -> None:
        answer.status = status
        if body is not None:
            answer.body = body
        for header, text in headers.items():
            answer.set(header.replace("_", "-"), text)

    return Kind(name, "head", tamper, untrue)


def wire_kind(name: str, send: Callable[[Answer, Random], list[Part]]) -> Kind:
    def tamper(answer: Answer, chance: Random) -> None:
        answer.wire = send(answer, chance)

    return Kind(name, "wire", tamper)
