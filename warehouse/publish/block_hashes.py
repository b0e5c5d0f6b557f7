"""The hashes of the published file, by block.

    state/published.json    the sha256 of the header and of each block, for the file that was
                            published last and the file before, by publication id

A DuckDB file has a header and blocks of 256 KiB; the first 8 bytes of a block are its checksum. A
publication changes few blocks of its base, so it hashes the header and the blocks whose checksums
changed, and keeps the other hashes. A block that the disk damaged keeps the hash from before, so
`verify` finds it.

The hashes are written before the rename, so the published file is known whichever file a crash
leaves. If the note is lost, the next publication hashes everything.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from warehouse.files.documents import format_document, hash_file, read_sealed, seal
from warehouse.files.storage import Storage

NOTE: Final = "published.json"
_HEADER_BYTES: Final = 3 * 4096
_BLOCK_BYTES: Final = 256 * 1024
_CHECKSUM_BYTES: Final = 8
_DIGEST_BYTES: Final = 32


class _Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    files: dict[str, str] = {}
    """The hashes of a file in hexadecimal digits, by its publication id."""
    sha256: str | None = None
    """The hash of all bytes, from an older Almanac; a full build replaces that file."""
    before: str | None = None


@dataclass(frozen=True, slots=True)
class BaseHashes:
    """The hashes of a file before it is changed, and the checksums of its blocks."""

    digests: bytes
    checksums: list[bytes]


class PublishedHashes:
    """The note in the state folder of a home."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def read_base(self, path: Path, publication: str) -> BaseHashes | None:
        """Return the hashes of a file that will be changed; None if they are not known.

        Raises:
            ValueError: the file's header changed since it was published.
        """
        note = self._read()
        digests = None if note is None else note.files.get(publication)
        if digests is None:
            return None
        base = BaseHashes(bytes.fromhex(digests), list(_read_checksums(path)))
        if base.digests[:_DIGEST_BYTES] != _hash_part(path, 0, _HEADER_BYTES):
            raise ValueError("another program wrote to it")
        return base

    def note(self, staged: Path, publication: str, replaced: str, base: BaseHashes | None) -> None:
        """Record the hashes of a file before it replaces the published one, and keep those."""
        before = self._read() or _Note()
        files = {publication: hash_blocks(staged, base).hex()}
        if replaced in before.files:
            files[replaced] = before.files[replaced]
        whole = before.sha256 or (None if replaced in before.files else before.before)
        note = _Note(files=files, before=whole)
        self._state.put(NOTE, seal(format_document(note)))

    def is_noted(self) -> bool:
        """Whether a note exists, and can be read."""
        return self._read() is not None

    def match(self, path: Path) -> bool:
        """Whether a file has the bytes of the last publication or of the one before.

        Raises:
            OSError: it can't be read.
        """
        note = self._read()
        if note is None:
            return False
        if hash_blocks(path).hex() in note.files.values():
            return True
        whole = [digest for digest in (note.sha256, note.before) if digest]
        return bool(whole) and hash_file(path) in whole

    def _read(self) -> _Note | None:
        try:
            return read_sealed(self._state.read(NOTE), _Note)
        except (OSError, ValueError):
            return None


def hash_blocks(path: Path, base: BaseHashes | None = None) -> bytes:
    """Return the sha256 of the header and of each block of a file, one after the other.

    Blocks whose checksums are the same as in `base` are not read.
    """
    known = base or BaseHashes(b"", [])
    digests = [_hash_part(path, 0, _HEADER_BYTES)]
    with path.open("rb", buffering=0) as file:
        for number, checksum in enumerate(_read_checksums(path)):
            place = (number + 1) * _DIGEST_BYTES
            digest = known.digests[place : place + _DIGEST_BYTES]
            if not digest or known.checksums[number : number + 1] != [checksum]:
                at = _HEADER_BYTES + number * _BLOCK_BYTES
                digest = hashlib.sha256(os.pread(file.fileno(), _BLOCK_BYTES, at)).digest()
            digests.append(digest)
    return b"".join(digests)


def _read_checksums(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(_HEADER_BYTES, size, _BLOCK_BYTES):
            yield os.pread(file.fileno(), _CHECKSUM_BYTES, at)


def _hash_part(path: Path, at: int, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.sha256(os.pread(file.fileno(), size, at)).digest()
