"""Sealed documents, notes, and hashes of files.

A seal is the last member of a JSON document: the sha256 of the rest. Manifests in landing and
`home.json` have one. Notes are small sealed documents in `state/` that outlast a process; a damaged
note is renamed to `<name>.damaged`, logged once and ignored.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from warehouse.files.storage import Storage

_SEAL: Final = re.compile(rb',\n "sha256_of_the_rest": "([0-9a-f]{64})"\n\}\Z')
_END: Final = b"\n}"
_DAMAGED = ".damaged"
_T = TypeVar("_T")
log = logging.getLogger(__name__)


class BrokenSeal(ValueError):
    """A document changed after it was sealed, or has no seal."""


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's bytes. Raises OSError: it can't be read, or is not a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(document: bytes) -> bytes:
    """Return a JSON object, as `format_document` writes it, with its hash added as the last member.

    An empty object is returned as it is.
    """
    if not document.endswith(_END):
        return document
    seal = hashlib.sha256(document).hexdigest().encode()
    return document.removesuffix(_END) + b',\n "sha256_of_the_rest": "' + seal + b'"\n}'


def is_sealed(data: bytes) -> bool:
    """Whether a document ends in a seal. Raises BrokenSeal if the seal does not match."""
    return unseal(data) != data


def unseal(data: bytes) -> bytes:
    seal = _SEAL.search(data)
    if seal is None:
        return data
    document = data[: seal.start()] + _END
    if hashlib.sha256(document).hexdigest().encode() != seal[1]:
        raise BrokenSeal("its bytes were changed since they were written")
    return document


def format_document(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def put_note(state: Storage, name: str, note: object) -> None:
    """Write or replace a note. `name` ends in `.json`."""
    state.put(name, seal(format_document(note)))


def read_note(
    state: Storage, name: str, kind: type[_T], wrong: Callable[[_T], str] = lambda note: ""
) -> _T | None:
    """Return a note; None if there is none or it is damaged; a damaged note is set aside.

    `wrong` returns why the content of a note is invalid, empty if it is valid. A timestamp without
    a zone is always invalid.
    """
    try:
        data = state.read(name)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        _set_aside(state, name, "it is a folder, expected a file")
        return None
    except OSError as error:
        log.warning("%s is ignored: %s", state.path(name), error.strerror)
        return None
    try:
        note = msgspec.json.decode(unseal(data), type=kind)
        why = "a timestamp has no zone" if any(_naive(note)) else wrong(note)
    except (ValueError, RecursionError) as error:
        why = str(error)
    if not why:
        return note
    with suppress(OSError):
        if state.read(name) != data:
            return None  # It was just replaced: the next call reads the new note.
    _set_aside(state, name, why)
    return None


def read_notes(
    state: Storage, folder: str, kind: type[_T], wrong: Callable[[str, _T], str]
) -> list[_T]:
    """Return the valid notes of a folder, sorted by name; `wrong` also receives the name."""
    if state.path(folder).is_file():
        _set_aside(state, folder, "it is a file, expected a folder")
    names = [name for name in state.names(folder) if name.endswith(".json")]
    found = (
        read_note(state, name, kind, lambda note, name=name: wrong(name, note))  # type: ignore[misc]
        for name in names
    )
    return [note for note in found if note is not None]


def _naive(value: Any) -> Iterator[datetime]:
    """Yield the timestamps in a value that have no zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            yield value
    elif isinstance(value, msgspec.Struct):
        for part in msgspec.structs.astuple(value):
            yield from _naive(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _naive(part)


def _set_aside(state: Storage, name: str, why: str) -> None:
    path = state.path(name)
    aside = path.with_name(path.name + _DAMAGED)
    try:
        path.replace(aside)
    except OSError as error:
        log.warning("%s is damaged (%s) and ignored: %s", path, why, error.strerror)
    else:
        log.warning(
            "%s was damaged (%s): it was renamed to %s and is ignored.", path, why, aside.name
        )
