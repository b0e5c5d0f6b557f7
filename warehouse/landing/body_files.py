"""The files of landed bodies: zstd, one frame for each page. Their paths are in landing.py."""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import zstandard

from warehouse.landing.batches import KEY_MARK, LandedPage

_LEVEL: Final = 3
CHUNK_BYTES: Final = 1 << 20


def compress(
    bodies: Iterator[tuple[Iterator[bytes], datetime | None]],
    target: Path,
    status: int,
    redactions: "RedactionCounter",
) -> tuple[str, list[LandedPage]]:
    """Write a zstd frame for each body; return the sha256 of all bytes, and the pages."""
    whole, pages, offset = hashlib.sha256(), list[LandedPage](), 0
    with target.open("wb") as file:
        for chunks, received_at in bodies:
            is_first, length = not pages, 0
            digest = hashlib.sha256()
            compressor = zstandard.ZstdCompressor(level=_LEVEL)
            with compressor.stream_writer(file, closefd=False) as frame:
                for chunk in chunks:
                    frame.write(chunk)
                    whole.update(chunk)
                    redactions.feed(chunk)
                    if not is_first:
                        digest.update(chunk)
                    length += len(chunk)
            if is_first:  # The first page is all data so far, and need not be hashed twice.
                digest = whole.copy()
            page = LandedPage(
                offset=offset,
                length=length,
                sha256=digest.hexdigest(),
                status=status,
                received_at=received_at,
            )
            pages.append(page)
            offset += length
    return whole.hexdigest(), pages


class RedactionCounter:
    """Counts the places of a body where the API key was removed."""

    def __init__(self) -> None:
        self.count = 0
        self._mark = KEY_MARK.encode()
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        data = self._end + chunk
        self.count += data.count(self._mark)
        self._end = data[-len(self._mark) + 1 :]


def decompressed(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks, across all frames.

    Raises:
        OSError, zstandard.ZstdError: it can't be read.
    """
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
