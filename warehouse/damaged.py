"""Landed batches that are damaged, and set aside: named, left out, and taken back once whole.

    landing/damaged/{batch id}.json

A file for each, so that what was lost is still told after a replay went on without it.
"""

from pathlib import PurePosixPath

import msgspec

from warehouse.storage import Storage

FOLDER = "damaged"


class _Why(msgspec.Struct, frozen=True, kw_only=True):
    why: str


class SetAside:
    """The notes of what is set aside in a landing folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def all(self) -> dict[str, str]:
        """Return why each batch is set aside, by id; a note that can't be read still counts."""
        found: dict[str, str] = {}
        for name in self._storage.names(FOLDER):
            if name.endswith(".json"):
                found[PurePosixPath(name).stem] = self._why(name)
        return found

    def add(self, batch_id: str, why: str) -> None:
        self._storage.put(f"{FOLDER}/{batch_id}.json", msgspec.json.encode(_Why(why=why)))

    def remove(self, batch_id: str) -> None:
        self._storage.remove(f"{FOLDER}/{batch_id}.json")

    def _why(self, name: str) -> str:
        try:
            return msgspec.json.decode(self._storage.read(name), type=_Why).why
        except (OSError, ValueError):
            return "the note of why can't be read"
