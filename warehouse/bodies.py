"""What the bytes of a body are, and how they are read: pages one by one, gzip undone.

Belongs here: everything that can be told without knowing a field. Does not: rows
(json_rows.py, csv_rows.py).
"""

import codecs
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from warehouse.batches import Manifest, Page
from warehouse.errors import WarehouseError
from warehouse.landing import Landing
from warehouse.plain_text import plain_line

Kind = Literal["empty", "html", "json", "csv"]
GZIP_MAGIC: Final = b"\x1f\x8b"
_WORDS_MAX: Final = 80


class Unreadable(WarehouseError):
    """A body that is no JSON, or no CSV, at all. The message says what it is."""


def kind_of(head: bytes) -> Kind:
    """Tell from its first bytes what a body is; what is nothing else is CSV."""
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        return "empty"
    if start[:1] == b"<":
        return "html"
    return "json" if start[:1] in b"{[" else "csv"


def pages(landing: Landing, manifest: Manifest) -> Iterator[tuple[Page, bytes]]:
    """Yield every page with its bytes, holding no more than one."""
    chunks = landing.body(manifest)
    held, start = bytearray(), 0
    for page in manifest.pages:
        while start + len(held) < page.offset + page.length and (chunk := next(chunks, b"")):
            held += chunk
        del held[: page.offset - start]
        start = page.offset
        yield page, _plain(bytes(held[: page.length]))
    for _ in chunks:
        pass  # to the end, where the bytes are checked against their sha256


def gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Undo gzip, in one member or several.

    Raises:
        Unreadable: it is damaged or cut off.
    """
    member = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            data = chunk
            while data:
                yield member.decompress(data)
                data = member.unused_data
                if member.eof:
                    member = zlib.decompressobj(wbits=31) if data else member
                    data = data.lstrip(b"\0")
        if not member.eof:
            raise Unreadable("a gzip body that is cut off")
    except zlib.error as error:
        raise Unreadable(f"a gzip body that is damaged: {error}") from error


def decoded(body: bytes) -> tuple[Any, bool]:
    """Return the value of a JSON body, and whether the strict reader took it.

    Of a key that occurs twice the last value holds. The tolerant reader also takes NaN, a byte
    order mark, lone surrogates, and turns bytes that are not UTF-8 into such.

    Raises:
        Unreadable: it is no JSON.
    """
    try:
        return msgspec.json.decode(body), True
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    kind = kind_of(body)
    if kind == "empty":
        raise Unreadable("an empty body")
    if kind == "html":
        raise Unreadable("an HTML page")
    try:
        return json.loads(body.decode("utf-8-sig", "surrogateescape")), False
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no JSON: {str(error)[:_WORDS_MAX]}") from error


def rows_of(value: Any) -> list[Any]:
    """Return the rows of a list page: the list itself, or that in `data`.

    Raises:
        Unreadable: it holds no list; the message gives an error's own words.
    """
    rows = value.get("data") if isinstance(value, dict) else value
    if isinstance(rows, list):
        return rows
    words = error_words(value)
    raise Unreadable("JSON without a list" if words is None else f"a JSON error: {words}")


def error_words(value: Any) -> str | None:
    """Return what an error body says, or None where it is no error."""
    if not isinstance(value, dict):
        return None
    error = value.get("error", value.get("message"))
    if isinstance(error, dict):
        error = error.get("message", error.get("code"))
    return None if error is None else plain_line(str(error))[:_WORDS_MAX]


def _plain(body: bytes) -> bytes:
    if not body.startswith(GZIP_MAGIC):
        return body
    try:
        return b"".join(gunzip((body,)))
    except Unreadable:
        return body
