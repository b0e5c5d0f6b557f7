"""Bytes and values: gzip, JSON, and texts that can be stored.

Clients and the reader of landed batches share these codecs. Rows and fields are in
warehouse/normalise. Limits are in size_limits.py.
"""

import codecs
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from almanac.core.errors import WarehouseError
from almanac.core.text import plain_line
from catalog.contract.bodies import ListBody, read_list_body
from warehouse import size_limits

Kind = Literal["empty", "html", "json", "csv"]
GZIP_MAGIC: Final = b"\x1f\x8b"
UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WORDS_MAX: Final = 80
_WORDS_READ: Final = 1_000
_PACKED_PIECE_BYTES: Final = 1 << 14
_PIECE_BYTES: Final = 1 << 20
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16
_INTEGER_BITS: Final = 63


class UnreadableBody(WarehouseError):
    """A body that is neither JSON nor CSV. The message says what it is."""


class HtmlBody(UnreadableBody):
    """A body that is an HTML page."""

    def __init__(self) -> None:
        super().__init__("an HTML page")


class OversizedBody(UnreadableBody):
    """A body that exceeds a limit of memory or disk (size_limits.py)."""


def detect_kind(head: bytes) -> Kind:
    """Return the kind of a body from its first bytes; CSV if it has no other kind.

    Valid JSON and CSV never begin with `<` here: that is HTML or other markup.
    """
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        return "empty"
    if start[:1] == b"<":
        return "html"
    return "json" if start[:1] in b"{[" else "csv"


class DamagedGzip(Exception):
    """Bytes that are not valid gzip; the message is from zlib."""


class GzipDecoder:
    """Decompresses gzip of one or more members; each must end with its CRC and length.

    `packed_bytes` counts the bytes read. Zeros after a member are skipped if padding is allowed, as
    in a file from tape. In a response they mean damage.
    """

    def __init__(self, *, may_be_padded: bool = False) -> None:
        self._member = zlib.decompressobj(_GZIP_WBITS)
        self._may_be_padded = may_be_padded
        self.packed_bytes = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress more bytes; yield small pieces, however large the result."""
        # In short parts, since every member copies the rest of its part.
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
        """Whether the bytes read so far end within a member."""
        return self.packed_bytes > 0 and not self._member.eof


def gunzip(chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[bytes]:
    """Decompress landed gzip bytes; yield small pieces, however large the result."""
    decoder, unpacked = GzipDecoder(may_be_padded=True), 0
    try:
        for chunk in chunks:
            for piece in decoder.pieces(chunk):
                unpacked += len(piece)
                _check_bounds(decoder.packed_bytes, unpacked, max_bytes)
                yield piece
    except DamagedGzip as error:
        raise UnreadableBody(f"a gzip body that is damaged: {error}") from error
    if decoder.is_cut_off:
        raise UnreadableBody("a gzip body that is cut off")


def as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a text as UTF-8: UTF-16 with a byte order mark is recoded, the rest is unchanged."""
    pieces = iter(chunks)
    head = next(filter(None, pieces), b"")
    pieces = chain((head,), pieces)
    if not head.startswith(UTF_16):
        yield from pieces
        return
    try:
        yield from (text.encode() for text in codecs.iterdecode(pieces, "utf-16"))
    except UnicodeError as error:
        raise UnreadableBody("UTF-16 that is damaged or cut off") from error


def _check_bounds(packed: int, unpacked: int, max_bytes: int) -> None:
    if unpacked > max_bytes:
        raise OversizedBody(f"a gzip body that unpacks to over {max_bytes} bytes")
    if unpacked > max(size_limits.RATIO_FROM_BYTES, size_limits.RATIO * packed):
        raise OversizedBody(
            f"a gzip body that unpacks to over {size_limits.RATIO:g} times its size"
        )


def unpack_page(body: bytes) -> bytes:
    """Return a page, decompressed if it is gzip."""
    if not body.startswith(GZIP_MAGIC):
        return body
    return b"".join(gunzip((body,), max_bytes=size_limits.PAGE_BYTES))


def decode_json(data: bytes) -> tuple[Any, bool]:
    """Return the value of a JSON body, and whether the strict reader accepted it.

    If a key occurs twice, the last value is used. The tolerant reader also accepts NaN, a byte
    order mark and lone surrogates, and turns bytes that are not UTF-8 into lone surrogates.
    """
    body = unpack_page(data)
    _check_elements(body)
    try:
        return msgspec.json.decode(body), True
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    kind = detect_kind(body)
    if kind == "empty":
        raise UnreadableBody("an empty body")
    if kind == "html":
        raise HtmlBody
    try:
        text = body.decode("utf-8-sig", "surrogateescape")
        return json.loads(text, parse_int=_integer), False
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"no JSON: {str(error)[:_WORDS_MAX]}") from error


def _check_elements(body: bytes) -> None:
    """Refuse a body of millions of values before it is decoded: decoding three bytes can take 70
    bytes of memory."""
    if len(body) > size_limits.ELEMENTS:
        elements = sum(map(body.count, (b",", b"[", b"{")))
        if elements > size_limits.ELEMENTS:
            raise OversizedBody(
                f"JSON of {elements} values; expected at most {size_limits.ELEMENTS}"
            )


def _integer(digits: str) -> int | float:
    if len(digits) <= size_limits.INTEGER_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


def find_list(value: Any) -> ListBody:
    """Return the list in the value of a page.

    Raises:
        UnreadableBody: there is no list; the message quotes the service's error, if there is one.
        OversizedBody: there are more rows than a page can have.
    """
    found = read_list_body(value)
    if found is not None:
        if len(found.rows) > size_limits.PAGE_ROWS:
            raise OversizedBody(
                f"a list of {len(found.rows)} rows; expected at most {size_limits.PAGE_ROWS}"
            )
        return found
    words = find_error_text(value)
    raise UnreadableBody("JSON without a list" if words is None else f"a JSON error: {words}")


def find_error_text(value: Any) -> str | None:
    """Return the message of an error body, or None if it is not an error."""
    if not isinstance(value, dict):
        return None
    error = value.get("error", value.get("message"))
    if isinstance(error, dict):
        error = error.get("message", error.get("code"))
    if error is None:
        return None
    words = error if isinstance(error, str) else raw_text(error)
    return plain_line(words[:_WORDS_READ])[:_WORDS_MAX]


def make_storable(value: Any) -> Any:
    """Return a value that JSON can hold: infinite numbers and those over 64 bits become text."""
    if isinstance(value, dict):
        return {key: make_storable(element) for key, element in value.items()}
    if isinstance(value, list):
        return [make_storable(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if type(value) is int and value.bit_length() > _INTEGER_BITS:
        return str(float(value)) if value.bit_length() < 1_000 else "inf"
    return value


def storable_text(text: str) -> str:
    """Return a text that can be stored: other characters are replaced by escapes."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text.encode("utf-8", "backslashreplace").decode()


def holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_nul(key) or holds_nul(element) for key, element in value.items())
    if isinstance(value, list):
        return any(map(holds_nul, value))
    return isinstance(value, str) and "\0" in value


def raw_text(value: Any) -> str:
    """Return any row as JSON text for people to read."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        try:
            return ascii(value)
        except RecursionError:
            return "(nested too deep to show)"
