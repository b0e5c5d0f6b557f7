"""Files of bodies: whole, or as the difference from an earlier body.

    whole     a zstd frame for each page, so that readers can take one page or all as one stream
    packed    a skippable frame with the sha256 of a base, which is another body; then a zstd frame
              with the bytes of the base as its dictionary

An export differs little from earlier ones: packed, it takes a hundredth of its whole file.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import zstandard

from almanac.core.files import sync
from warehouse.files.storage import Storage
from warehouse.landing.batches import KEY_MARK, LandedPage

LARGE: Final = 64 << 20
"""Bodies of fewer bytes are packed: the base and its index are in memory."""
CHUNK_BYTES: Final = 1 << 20
_LEVEL: Final = 1
_LAZY_LEVEL: Final = 6
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
    return _read_frames(path, None if base is None else _dictionary(b"".join(decompress(base))))


def _read_frames(path: Path, base: zstandard.ZstdCompressionDict | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        decompressor = zstandard.ZstdDecompressor(dict_data=base)
        stream = decompressor.stream_reader(file, read_across_frames=True)
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _dictionary(data: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def pack(storage: Storage, base: Path, paths: Iterable[Path]) -> None:
    """Pack whole bodies. A file is replaced after its successor was synced, read and compared.

    Raises:
        OSError, zstandard.ZstdError: a file can't be read or written; it is unchanged.
    """
    while (below := find_base(base)) is not None:
        base = below
    waiting = [path for path in paths if path != base and find_base(path) is None]
    if not waiting:
        return
    data = b"".join(decompress(base))
    digest, dictionary = hashlib.sha256(data), _dictionary(data)
    if digest.hexdigest() != base.stem:
        return
    # zstd indexes all of a base only if the tables have a place for each eight bytes, and all of
    # more than 16 MB only if it searches lazily.
    log = max(_LEAST_LOG, len(data).bit_length())
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LAZY_LEVEL, window_log=log + 1, hash_log=log - 3, chain_log=log - 3, write_checksum=True
    )
    compressor = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)
    for path in waiting:
        packed = _MARK + digest.digest() + compressor.compress(b"".join(decompress(path)))
        with storage.staging() as staged:
            staged.write_bytes(packed)
            sync(staged)
            found = hashlib.sha256(b"".join(_read_frames(staged, dictionary))).hexdigest()
            if found == path.stem and 2 * len(packed) < path.stat().st_size:
                storage.adopt(staged, body_name(found))
