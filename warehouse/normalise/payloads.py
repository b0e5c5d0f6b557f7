"""What the bytes of a body are, and how they are read: pages one by one, gzip undone.

Belongs here: everything that can be told without knowing a field. Does not: rows
(json_rows.py, csv_header.py).
"""

import codecs
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from catalog.contract.bodies import ListBody, list_body
from warehouse import bounds
from warehouse.errors import WarehouseError
from warehouse.landing.batches import LandedPage, Manifest
from warehouse.landing.landing import Landing
from warehouse.normalise.values import raw_text
from warehouse.plain_text import plain_line

Kind = Literal["empty", "html", "json", "csv"]
GZIP_MAGIC: Final = b"\x1f\x8b"
_WORDS_MAX: Final = 80
_WORDS_READ: Final = 1_000
_PACKED_PIECE_BYTES: Final = 1 << 14
_PIECE_BYTES: Final = 1 << 20
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16


class Unreadable(WarehouseError):
    """A body that is no JSON, or no CSV, at all. The message says what it is."""


class HtmlBody(Unreadable):
    """A body that is an HTML page."""

    def __init__(self) -> None:
        super().__init__("an HTML page")


class Oversized(Unreadable):
    """A body that would take more memory or disk than it may (bounds.py)."""


def kind_of(head: bytes) -> Kind:
    """Tell from its first bytes what a body is; what is nothing else is CSV.

    No JSON and no CSV of ours begins with `<`: that is HTML, or other markup.
    """
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        return "empty"
    if start[:1] == b"<":
        return "html"
    return "json" if start[:1] in b"{[" else "csv"


def pages(landing: Landing, manifest: Manifest) -> Iterator[tuple[LandedPage, bytes]]:
    """Yield every page with its bytes as they were landed, holding no more than one.

    Raises:
        Unreadable: a page is too large to be read whole.
    """
    chunks = landing.body(manifest)
    buffer, start = bytearray(), 0
    for page in manifest.pages:
        if page.length > bounds.PAGE_BYTES:
            raise Oversized(
                f"a page of {page.length} bytes; expected at most {bounds.PAGE_BYTES} in one piece"
            )
        while start + len(buffer) < page.offset + page.length and (chunk := next(chunks, b"")):
            buffer += chunk
        del buffer[: page.offset - start]
        start = page.offset
        yield page, bytes(buffer[: page.length])
    for _ in chunks:
        pass  # to the end, where the bytes are checked against their sha256


class DamagedGzip(Exception):
    """Bytes that are no sound gzip, in the words of zlib."""


class Gunzip:
    """Undoes gzip, in one member or several; each must end with its CRC and length.

    `packed_bytes` counts what was read. Zeros behind a member are skipped where it may be padded,
    as a file on a tape is; in an answer they are damage.
    """

    def __init__(self, *, may_be_padded: bool = False) -> None:
        self._member = zlib.decompressobj(_GZIP_WBITS)
        self._may_be_padded = may_be_padded
        self.packed_bytes = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes hold, in pieces that are small, whatever they unpack to.

        Raises:
            DamagedGzip: they are no gzip.
        """
        # In short parts: of many tiny members, each copies what is left of its part.
        for start in range(0, len(data), _PACKED_PIECE_BYTES):
            part = data[start : start + _PACKED_PIECE_BYTES]
            self.packed_bytes += len(part)
            yield from self._pieces(part)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0") if self._may_be_padded else data
                if not data:
                    return
                self._member = zlib.decompressobj(_GZIP_WBITS)
            try:
                piece = self._member.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise DamagedGzip(str(error)) from error
            yield piece
            data = self._member.unconsumed_tail or self._member.unused_data

    @property
    def is_cut_off(self) -> bool:
        """Whether what was read ends within a member."""
        return self.packed_bytes > 0 and not self._member.eof


def gunzip(chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[bytes]:
    """Undo gzip of landed bytes; each piece is small, whatever it unpacks to.

    Raises:
        Unreadable: it is damaged, cut off, or unpacks to more than it may.
    """
    decoder, unpacked = Gunzip(may_be_padded=True), 0
    try:
        for chunk in chunks:
            for piece in decoder.pieces(chunk):
                unpacked += len(piece)
                _check_bounds(decoder.packed_bytes, unpacked, max_bytes)
                yield piece
    except DamagedGzip as error:
        raise Unreadable(f"a gzip body that is damaged: {error}") from error
    if decoder.is_cut_off:
        raise Unreadable("a gzip body that is cut off")


def _check_bounds(packed: int, unpacked: int, max_bytes: int) -> None:
    if unpacked > max_bytes:
        raise Oversized(f"a gzip body that unpacks to over {max_bytes} bytes")
    if unpacked > max(bounds.RATIO_FROM_BYTES, bounds.RATIO * packed):
        raise Oversized(f"a gzip body that unpacks to over {bounds.RATIO:g} times its size")


def plain(body: bytes) -> bytes:
    """Return a page with gzip undone.

    Raises:
        Unreadable: it is damaged, or too large.
    """
    if not body.startswith(GZIP_MAGIC):
        return body
    return b"".join(gunzip((body,), max_bytes=bounds.PAGE_BYTES))


def decoded(data: bytes) -> tuple[Any, bool]:
    """Return the value of a JSON body, and whether the strict reader took it.

    Of a key that occurs twice the last value holds. The tolerant reader also takes NaN, a byte
    order mark, lone surrogates, and turns bytes that are not UTF-8 into such.

    Raises:
        Unreadable: it is no JSON, or would not fit into memory.
    """
    body = plain(data)
    _check_elements(body)
    try:
        return msgspec.json.decode(body), True
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    kind = kind_of(body)
    if kind == "empty":
        raise Unreadable("an empty body")
    if kind == "html":
        raise HtmlBody
    try:
        text = body.decode("utf-8-sig", "surrogateescape")
        return json.loads(text, parse_int=_integer), False
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no JSON: {str(error)[:_WORDS_MAX]}") from error


def _check_elements(body: bytes) -> None:
    """Refuse a body of millions of values before they are made: three bytes can take 70."""
    if len(body) > bounds.ELEMENTS:
        elements = sum(map(body.count, (b",", b"[", b"{")))
        if elements > bounds.ELEMENTS:
            raise Oversized(f"JSON of {elements} values; expected at most {bounds.ELEMENTS}")


def _integer(digits: str) -> int | float:
    if len(digits) <= bounds.INTEGER_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


def list_in(value: Any) -> ListBody:
    """Return the list that a page is.

    Raises:
        Unreadable: it holds no list; the message gives an error's own words.
        Oversized: it holds more rows than a page can have.
    """
    found = list_body(value)
    if found is not None:
        if len(found.rows) > bounds.PAGE_ROWS:
            raise Oversized(
                f"a list of {len(found.rows)} rows; expected at most {bounds.PAGE_ROWS}"
            )
        return found
    words = error_words(value)
    raise Unreadable("JSON without a list" if words is None else f"a JSON error: {words}")


def error_words(value: Any) -> str | None:
    """Return what an error body says, or None where it is no error."""
    if not isinstance(value, dict):
        return None
    error = value.get("error", value.get("message"))
    if isinstance(error, dict):
        error = error.get("message", error.get("code"))
    if error is None:
        return None
    words = error if isinstance(error, str) else raw_text(error)
    return plain_line(words[:_WORDS_READ])[:_WORDS_MAX]
