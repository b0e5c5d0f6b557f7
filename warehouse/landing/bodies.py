"""Files of bodies: whole, or as the difference from an earlier body.

    whole     a zstd frame for each page, so that readers can take one page or all as one stream
    packed    a skippable frame with the sha256 of a base, which is another body; then a zstd frame
              with the bytes of the base as its dictionary

An export differs little from earlier ones: packed, it takes a hundredth of its whole file.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import zstandard

from warehouse.landing.batches import KEY_MARK, LandedPage

PACKED_BYTES: Final = 64 << 20
"""Bytes of the largest body that is packed: the base and its index are in memory."""
CHUNK_BYTES: Final = 1 << 20
_LEVEL: Final = 3
_MARK: Final = b"\x5a\x2a\x4d\x18\x20\0\0\0"
"""Of a skippable frame of 32 bytes."""
_HASH_BYTES: Final = 32
_LEAST_LOG: Final = 20


def body_name(sha256: str) -> str:
    return f"bodies/{sha256[:2]}/{sha256}.zst"


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
    """Counts how often the API key was removed from a body."""

    def __init__(self) -> None:
        self.count = 0
        self._mark = KEY_MARK.encode()
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        data = self._end + chunk
        self.count += data.count(self._mark)
        self._end = data[-len(self._mark) + 1 :]


def find_base(path: Path) -> Path | None:
    """Return the file of the base of a packed body; None if the body is whole.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        mark, digest = file.read(len(_MARK)), file.read(_HASH_BYTES)
    return path.parents[2] / body_name(digest.hex()) if mark == _MARK else None


def decompress(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a body in chunks, across all frames.

    Raises:
        OSError, zstandard.ZstdError: it can't be read.
    """
    base = find_base(path)
    dictionary = None if base is None else _make_dictionary(b"".join(decompress(base)))
    with path.open("rb") as file:
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
        stream = decompressor.stream_reader(file, read_across_frames=True)
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _make_dictionary(data: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


class BodyPacker:
    """Packs bodies as their differences from one base. The base is indexed once."""

    def __init__(self, base: bytes) -> None:
        digest = hashlib.sha256(base)
        self.base_sha256 = digest.hexdigest()
        self._head = _MARK + digest.digest()
        self._dictionary = _make_dictionary(base)
        # Both texts are in the window. zstd only indexes the end of a base, unless the tables have
        # a place for each eight bytes; and of 16 MB, unless it searches lazily.
        log = max(_LEAST_LOG, len(base).bit_length())
        parameters = zstandard.ZstdCompressionParameters(
            strategy=zstandard.STRATEGY_LAZY,
            window_log=log + 1,
            hash_log=log - 3,
            chain_log=log - 3,
            search_log=1,
            min_match=7,
            write_checksum=True,
        )
        self._compressor = zstandard.ZstdCompressor(
            dict_data=self._dictionary, compression_params=parameters
        )

    def pack(self, body: bytes) -> bytes:
        return self._head + self._compressor.compress(body)

    def unpack(self, packed: bytes) -> bytes:
        decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        return decompressor.decompress(packed.removeprefix(self._head))
