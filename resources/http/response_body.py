"""The body of a response: decompressed, bounded, and complete or an error; JSON as values.

The client requests `identity` and undoes gzip itself, since httpx accepts a truncated gzip body,
or one without its trailer, as complete.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import httpx

from resources.credentials import Redactor
from resources.errors import ContractBroken, NotData, NotDataKind, TruncatedBody
from resources.response import Answer, ResponseHead
from warehouse import size_limits
from warehouse.codecs import (
    GZIP_MAGIC,
    DamagedGzip,
    GzipDecoder,
    OversizedBody,
    UnreadableBody,
    decode_json,
    detect_kind,
)
from warehouse.size_limits import RATIO, RATIO_FROM_BYTES

COUNT_MAX: Final = 10**12
"""Larger counts are rejected as impossible."""
_YEARS: Final = range(1900, 2201)
EPOCH: Final = range(1_000_000_000, 7_000_000_000)
"""Numbers that are read as seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a response may be, in decompressed bytes.

    `pull_bytes` and `pull_rows` are for all pages of a list together.
    """

    page_bytes: int = size_limits.PAGE_BYTES
    export_bytes: int = size_limits.BODY_BYTES
    pull_bytes: int = 2 << 30
    pull_rows: int = 2_000_000


@dataclass(eq=False, repr=False, slots=True)
class Body:
    """The body of one response. `redact` removes the key if the service repeats it.

    `on_bytes` is called with the number of bytes as sent, for each chunk; it may raise.
    """

    response: httpx.Response
    redact: Redactor
    on_bytes: Callable[[int], None]
    wire_bytes: int = 0

    def pieces(self, max_bytes: int) -> Iterator[bytes]:
        """Yield the decompressed body.

        Raises:
            TruncatedBody: a gzip body without a sound end.
            ContractBroken: over `max_bytes`, or RATIO times the bytes on the wire.
            ContractBroken: an encoding that was not requested and can't be undone.
        """
        # Before it is in lower case, in which the key would not be recognised.
        encoding = self.redact(self.response.headers.get("content-encoding", "")).strip().lower()
        is_packed = encoding in ("gzip", "x-gzip")
        if not is_packed and encoding not in ("", "identity"):
            raise ContractBroken(
                f"The body is encoded as {encoding[:40]!r}; requested was identity"
            )
        head, pieces = _peek(self._counted())
        # Neither JSON nor CSV begins so: it is a gzip file without the header.
        if is_packed or head.startswith(GZIP_MAGIC):
            pieces = _gunzip(pieces)
        yield from self.redact.body(self._bounded(pieces, max_bytes))

    def _counted(self) -> Iterator[bytes]:
        assert isinstance(self.response.stream, httpx.SyncByteStream)
        for raw in self.response.stream:
            self.wire_bytes += len(raw)
            self.on_bytes(self.wire_bytes)
            yield raw

    def _bounded(self, pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > max_bytes:
                raise ContractBroken(f"The body is larger than {max_bytes} bytes")
            if size > RATIO_FROM_BYTES and size > RATIO * self.wire_bytes:
                raise ContractBroken(f"The body is larger than {RATIO:g} times the bytes sent")
            yield piece


def _peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, enough to recognise gzip, and all chunks."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(GZIP_MAGIC):
            break
    return head, chain((head,) if head else (), chunks)


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    gunzip = GzipDecoder()
    for chunk in chunks:
        try:
            yield from gunzip.pieces(chunk)
        except DamagedGzip as error:
            raise TruncatedBody(f"The gzip body is damaged ({error})") from error
    if gunzip.is_cut_off:
        raise TruncatedBody("The gzip body ended before its trailer")


def looks_like_html(body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether a body is HTML, by its header or its beginning."""
    return "html" in headers.get("content-type", "").lower() or detect_kind(body) == "html"


def decode_json_body(answer: Answer, call: str) -> Any:
    """Return the body as Python values.

    Raises:
        TruncatedBody: it ends early, or is otherwise no JSON.
        NotData: it is HTML, empty, or of another content type.
        ContractBroken: its values would not fit into memory.
    """
    try:
        return decode_json(answer.body)[0]
    except OversizedBody as oversized:
        raise ContractBroken(f"{call} was answered with {oversized}") from oversized
    except UnreadableBody:
        pass
    content_type = answer.headers.get("content-type", "")
    if not answer.body.strip():
        raise make_not_data_error(answer, call, "empty", "an empty body")
    if looks_like_html(answer.body, answer.headers):
        raise make_not_data_error(answer, call, "html", "an HTML page")
    if content_type and "json" not in content_type and answer.body.lstrip()[:1] not in b"{[":
        raise make_not_data_error(answer, call, "text", f"{content_type[:60]!r}")
    error = TruncatedBody(
        f"{call} was answered with {len(answer.body)} bytes that are not complete JSON"
    )
    error.evidence = answer
    raise error


def decode_object_body(answer: Answer, call: str) -> dict[str, Any]:
    """Return the body as a JSON object.

    Raises:
        TruncatedBody, NotData, ContractBroken: it is none.
    """
    content = decode_json_body(answer, call)
    if not isinstance(content, dict):
        raise make_not_data_error(answer, call, "json", "JSON that is not an object")
    return content


def make_not_data_error(answer: ResponseHead, call: str, kind: NotDataKind, what: str) -> NotData:
    error = NotData(f"{call} was answered with {what} instead of data", kind=kind)
    error.evidence = answer
    return error


def read_instant(value: Any) -> datetime | None:
    """Return an ISO 8601 text with a zone, or seconds since 1970, as aware UTC, else None.

    Also None for impossible years: arithmetic with the year 1 or 9999 overflows.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in EPOCH:
        return datetime.fromtimestamp(value, UTC)
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if read.tzinfo is None or read.year not in _YEARS else read.astimezone(UTC)


def read_count(value: Any) -> int | None:
    """Return a value or decimal text as an integer; None if it is not a possible integer."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        value = int(value.strip()[:18])
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= COUNT_MAX else None
