"""Bytes of a body: decoded, bounded, and complete or an error.

The client requests `identity` and undoes gzip itself, since httpx 0.28 accepts a truncated gzip
body, or one without its trailer, as complete.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import httpx

from resources.errors import CatalogError, ContractBroken, TooLarge, TruncatedBody
from resources.http.redaction import redactor_of
from warehouse.bounds import RATIO_FROM_BYTES
from warehouse.codecs import GZIP_MAGIC, DamagedGzip, Gunzip

_LAYERS_MAX: Final = 2
"""How often a body may be compressed: a gzip file, sent with gzip as its encoding."""


class _Decoder(Protocol):
    def pieces(self, data: bytes) -> Iterator[bytes]: ...

    def finish(self) -> None: ...


class _Identity:
    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        return None


class _GzipLayer:
    """Undoes gzip; damaged or truncated gzip is an error of the client."""

    def __init__(self) -> None:
        self._gunzip = Gunzip()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        try:
            yield from self._gunzip.pieces(data)
        except DamagedGzip as error:
            raise TruncatedBody(f"The gzip body is damaged ({error})") from error

    def finish(self) -> None:
        if self._gunzip.is_cut_off:
            raise TruncatedBody("The gzip body ended before its trailer")


def _decoder_for(encoding: str) -> _Decoder:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Identity()
    if name in ("gzip", "x-gzip"):
        return _GzipLayer()
    raise ContractBroken(
        f"The body is encoded as {name[:40]!r}", expected="Requested were identity and gzip"
    )


class BodyReader:
    """Reads one response to its end, and removes the key if the service repeats it.

    `wire_bytes` counts the bytes that were sent.

    Raises (while read):
        TruncatedBody: shorter than its Content-Length, or a gzip body without a sound end.
        TooLarge: over `max_bytes`, or `max_ratio` times the bytes on the wire.
        ContractBroken: an encoding that was not requested and can't be undone.
    """

    def __init__(self, response: httpx.Response, *, max_bytes: int, max_ratio: float) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self.wire_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        redactor = redactor_of(self._response)
        if redactor is None:
            yield from self._unpacked()
            return
        body = redactor.body(is_data=self._response.status_code == 200)
        try:
            for piece in self._unpacked():
                yield body.feed(piece)
        except (CatalogError, httpx.HTTPError, httpx.StreamError):
            # Of a truncated body, all that was received is kept.
            yield body.finish()
            raise
        yield body.finish()

    def _unpacked(self) -> Iterator[bytes]:
        pieces = self._layer(self._wire(), self._response.headers.get("content-encoding", ""))
        for _ in range(_LAYERS_MAX - 1):
            pieces = self._layer(pieces)
        for number, piece in enumerate(_with_whole_head(pieces)):
            if number == 0 and piece.startswith(GZIP_MAGIC):
                raise TooLarge(f"The body is compressed more than {_LAYERS_MAX} times")
            yield piece
        self._check_length()

    def read(self) -> bytes:
        return b"".join(self)

    def _wire(self) -> Iterator[bytes]:
        for raw in self._response.iter_raw():
            self.wire_bytes += len(raw)
            self._check_bounds(self.wire_bytes)
            yield raw

    def _layer(self, chunks: Iterator[bytes], encoding: str = "") -> Iterator[bytes]:
        """Undo one layer: the encoding in the header, or gzip if the bytes are gzip without one."""
        decoder: _Decoder | None = None
        size = 0
        for chunk in _with_whole_head(chunks):
            # Neither JSON nor CSV begins so: it is a gzip file without the header.
            name = "gzip" if chunk.startswith(GZIP_MAGIC) else encoding
            decoder = decoder or _decoder_for(name)
            for piece in decoder.pieces(chunk):
                size += len(piece)
                self._check_bounds(size)
                yield piece
        if decoder is not None:
            decoder.finish()

    def _check_bounds(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(f"The body is larger than {self._max_bytes} bytes")
        ratio = size / max(1, self.wire_bytes)
        if size > RATIO_FROM_BYTES and ratio > self._max_ratio:
            raise TooLarge(
                f"The body decompresses to more than {self._max_ratio:g} times the bytes that "
                "were sent"
            )

    def _check_length(self) -> None:
        stated = self._response.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) != self.wire_bytes:
            raise TruncatedBody(f"The body has {self.wire_bytes} bytes of {stated}")


def _with_whole_head(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks; the first is long enough to recognise gzip."""
    head: bytes | None = b""
    for chunk in chunks:
        if head is not None and len(head := head + chunk) < len(GZIP_MAGIC):
            continue
        yield chunk if head is None else head
        head = None
    if head:
        yield head
