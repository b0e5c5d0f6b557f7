"""Notes in a home's state: small documents, a file each, that outlast a process.

Each is sealed with its own hash. One that is not what was written is set aside as `<name>.damaged`,
which is logged once, and counts as none. Belongs here: writing, reading and setting aside. Does
not: what a note says (deferrals, sweeps, alerts).
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
    """Write a note, or replace it. `name` ends in `.json`."""
    state.put(name, sealed(formatted(note)))


def read_note(
    state: Storage, name: str, kind: type[_T], wrong: Callable[[_T], str] = lambda note: ""
) -> _T | None:
    """Return a note; None where there is none, or a damaged one, which is set aside.

    `wrong` returns, in words, what no note of its kind says; empty where nothing is wrong. An
    instant without a zone is always wrong.
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
            return None  # It has just been replaced: the next look has the new one.
    _set_aside(state, name, why)
    return None


def read_notes(
    state: Storage, folder: str, kind: type[_T], wrong: Callable[[str, _T], str]
) -> list[_T]:
    """Return the sound notes of a folder, by name; `wrong` is given the name too."""
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
