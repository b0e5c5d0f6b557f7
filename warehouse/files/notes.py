"""Notes in the state of a home: small documents, one file each, that outlast a process.

Each note is sealed with its hash. A damaged note is renamed to `<name>.damaged`, logged once and
ignored. Belongs here: writing, reading and setting aside. Does not: the content of notes
(deferrals, backfills, alerts).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from warehouse.files.hashes import formatted, opened, sealed
from warehouse.files.storage import Storage

_DAMAGED = ".damaged"
_T = TypeVar("_T")

log = logging.getLogger(__name__)


def put_note(state: Storage, name: str, note: object) -> None:
    """Write or replace a note. `name` ends in `.json`."""
    state.put(name, sealed(formatted(note)))


def read_note(
    state: Storage, name: str, kind: type[_T], wrong: Callable[[_T], str] = lambda note: ""
) -> _T | None:
    """Return a note; None if there is none or it is damaged; a damaged note is set aside.

    `wrong` returns why the content of a note is invalid, empty if it is valid. An instant without a
    zone is always invalid.
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
        note = msgspec.json.decode(opened(data), type=kind)
        why = "an instant has no zone" if any(_naive(note)) else wrong(note)
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
    """Yield the instants in a value that have no zone."""
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
