"""Packed checkpoints: the pages of an earlier file that differ from the next one's, compressed.

    checkpoints/YYYY-MM-DD.packed    a zstd frame: a head (JSON, one line), the places of the
                                     pages, the pages

A file of DuckDB changes in few pages from day to day. A packed file without `after` has all pages.
The hash in the head is of the whole file, so a file that was made again, or is damaged, is found.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

_PAGE: Final = 4096
_LEVEL: Final = 3


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the name of the file that has the other pages, None if there are no others."""

    after: str | None
    bytes: int
    pages: int
    sha256: str


class Unpackable(Exception):
    """A packed file, or the file that it follows, is damaged or was made again."""


def pack(data: Any, after: str | None, base: Any) -> bytes:
    """Return a file packed; `base` is the content of the file `after`."""
    import numpy as np

    count = min(len(data), len(base)) // _PAGE if after is not None else 0
    mine, other = (_pages(each, count) for each in (data, base))
    places = np.flatnonzero((mine != other).any(axis=1)).astype(np.uint32)
    head = Head(
        after=after,
        bytes=len(data),
        pages=len(places),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    parts = [msgspec.json.encode(head) + b"\n", places.tobytes()]
    parts += [mine[places].tobytes(), data[count * _PAGE :]]
    packed = [*map(compressor.compress, parts), compressor.flush()]
    del mine, other  # They hold the mapped files open.
    return b"".join(packed)


def read_head(path: Path) -> tuple[Head, bytes]:
    """Return the head and the rest of a packed file. Raises Unpackable."""
    try:
        with path.open("rb") as file:
            whole = zstandard.ZstdDecompressor().stream_reader(file).read()
        line, _, rest = whole.partition(b"\n")
        return msgspec.json.decode(line, type=Head), rest
    except (OSError, ValueError, zstandard.ZstdError) as error:
        raise Unpackable(f"{path.name} can't be read: {error}") from error


def unpack(head: Head, rest: bytes, base: bytes) -> bytes:
    """Return the content of a packed file. Raises Unpackable."""
    import numpy as np

    count = min(head.bytes, len(base)) // _PAGE if head.after is not None else 0
    places = np.frombuffer(rest, np.uint32, head.pages)
    at = head.pages * 4
    pages = np.frombuffer(rest, np.uint8, head.pages * _PAGE, at).reshape(-1, _PAGE)
    data = bytearray(head.bytes)
    data[: count * _PAGE] = base[: count * _PAGE]
    np.frombuffer(data, np.uint8, count * _PAGE).reshape(-1, _PAGE)[places] = pages
    data[count * _PAGE :] = rest[at + head.pages * _PAGE :]
    if hashlib.sha256(data).hexdigest() != head.sha256:
        raise Unpackable("its pages are not those of the file that was packed")
    return bytes(data)


def _pages(data: bytes, count: int) -> Any:
    import numpy as np

    return np.frombuffer(data, np.uint64, count * _PAGE // 8).reshape(count, _PAGE // 8)
