"""Hashes of the files of a home, recorded when they are written.

    lake/head.json                          the newest day of the change log, and its sha256
    in the files of the change log          the sha256 of the previous day, and of the day's files
    at the end of landing/batches/…/….json  a seal: the sha256 of the rest of the document
    lake/events/_sha256.json                the sha256 of the events of each month
    state/published.json                    the sha256 of the published file

A hash is written with its file, or before the record that names the file. A process that is killed
in between leaves a mark (`unfinished_from`, `_rewriting.json`) that names the hashes to ignore.
Belongs here: hashing and sealing. Does not: the head, the list of files (lake_files.py).
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from warehouse.files.storage import Storage

_SEAL: Final = re.compile(rb',\n "sha256_of_the_rest": "([0-9a-f]{64})"\n\}\Z')
_END: Final = b"\n}"
_Document = TypeVar("_Document", bound=msgspec.Struct)


class BrokenSeal(ValueError):
    """A document changed after it was sealed, or has no seal."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes.

    Raises:
        OSError: it can't be read, or is not a file.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(document: bytes) -> bytes:
    """Return a JSON object, as `formatted` writes it, with its hash added as the last member.

    An empty object is returned as it is.
    """
    if not document.endswith(_END):
        return document
    seal = hashlib.sha256(document).hexdigest().encode()
    return document.removesuffix(_END) + b',\n "sha256_of_the_rest": "' + seal + b'"\n}'


def is_sealed(data: bytes) -> bool:
    """Whether a document ends in a seal.

    Raises:
        BrokenSeal: the seal does not match the document.
    """
    return opened(data) != data


def opened(data: bytes) -> bytes:
    """Return a document without its seal, if it has one.

    Raises:
        BrokenSeal: the seal does not match the document.
    """
    seal = _SEAL.search(data)
    if seal is None:
        return data
    document = data[: seal.start()] + _END
    if hashlib.sha256(document).hexdigest().encode() != seal[1]:
        raise BrokenSeal("its bytes were changed since they were written")
    return document


def read_sealed(data: bytes, document: type[_Document]) -> _Document:
    """Return the value of a document that was formatted and sealed.

    Raises:
        ValueError: its bytes changed since it was written, or it has another type.
    """
    if not is_sealed(data):
        raise BrokenSeal("it has no hash of its own")
    return msgspec.json.decode(data, type=document)


def formatted(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def damage(lake: Storage, name: str, files: Mapping[str, str] | None) -> str | None:
    """Return how a lake file differs from its recorded hash; None if it does not or has none."""
    expected = None if files is None else files.get(name)
    if expected is None:
        return None
    try:
        found = sha256_of(lake.path(name))
    except OSError as error:
        return f"{name} can't be read: {error.strerror}"
    if found != expected:
        return f"{name} has the sha256 {found[:12]}…, expected {expected[:12]}…"
    return None
