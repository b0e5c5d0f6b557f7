"""The sha256 of the published file, noted outside of it.

    state/published.json

It is written before the file takes its name, with the hash of the file before: whichever of both a
crash leaves in place is known. Lost, it is written again by the next publication.
"""

from pathlib import Path
from typing import Final

import msgspec

from warehouse.hashes import formatted, read_sealed, sealed, sha256_of
from warehouse.storage import Storage

NOTE: Final = "published.json"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    before: str | None


def note_published(state: Storage | None, staged: Path, warehouse: Path) -> None:
    """Note the hash of a file that is about to be published, beside that of the one it replaces."""
    if state is None:
        return
    before = _read(state)
    is_of_it = before is not None and warehouse.exists()
    note = _Note(sha256=sha256_of(staged), before=before.sha256 if before and is_of_it else None)
    state.put(NOTE, sealed(formatted(note)))


def published_as(state: Storage) -> tuple[str, ...]:
    """Return the hashes that the published file may have; none where they are not known."""
    note = _read(state)
    return () if note is None else tuple(one for one in (note.sha256, note.before) if one)


def _read(state: Storage) -> _Note | None:
    try:
        return read_sealed(state.read(NOTE), _Note)
    except (OSError, ValueError):
        return None
