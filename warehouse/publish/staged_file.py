"""A warehouse file under construction, beside the one that readers have open.

It takes the published name in one rename, on disk, or leaves nothing. Its sha256 is noted outside
of it, before it takes its name and with the hash of the file before: whichever of both a crash
leaves in place is known. Lost, it is written again by the next publication.

    state/published.json

Belongs here: opening, binding, closing, putting in place. Does not: what is written (full,
delta).
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from warehouse.attaching import remove_abandoned_links, set_aside_foreign_wal
from warehouse.connections import open_spilling
from warehouse.files.file_modes import close_for_writing
from warehouse.files.hashes import formatted, read_sealed, sealed, sha256_of
from warehouse.files.storage import Storage, make_folders, sync
from warehouse.schema import ddl

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
    return () if note is None else tuple(digest for digest in (note.sha256, note.before) if digest)


def _read(state: Storage) -> _Note | None:
    try:
        return read_sealed(state.read(NOTE), _Note)
    except (OSError, ValueError):
        return None


_UNFINISHED: Final = ".unfinished-warehouse-"
_PARAMETER: Final = re.compile(r"\$([a-z_]+)")
Values = Mapping[str, Any]


class Staged:
    """One connection with the staged file attached and in use, in a transaction until `commit`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = open_spilling(path.with_name(f"{path.name}-spill"))
        self.connection.execute(ddl.attach(path, "staged", read_only=False))
        self.connection.execute("USE staged")
        self.connection.execute("BEGIN")

    def run(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Run one statement with those of the values that it names."""
        return self.connection.execute(sql, _named(sql, values or {})).fetchall()

    def run_beside(self, sql: str, values: Values) -> None:
        """Run one statement on a connection of its own, which sees what is committed.

        For threads: one connection runs one statement at a time.
        """
        with self.connection.cursor() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(sql, _named(sql, values))

    def commit_so_far(self) -> None:
        """Commit what is there so far, so that memory need not hold it, and go on.

        For a file that is made anew: it is nothing until its rename, in one transaction or many.
        """
        for text in ("COMMIT", "BEGIN"):
            self.connection.execute(text)

    def commit(self) -> None:
        """Write all of it to the file, which nothing waits beside."""
        for text in ("COMMIT", "CHECKPOINT staged"):
            self.connection.execute(text)

    def close(self) -> None:
        for text in ("CHECKPOINT staged", "USE memory", "DETACH staged"):
            self.connection.execute(text)
        self.connection.close()

    def abandon(self) -> None:
        self.connection.close()


@contextmanager
def staging(warehouse: Path) -> Iterator[Path]:
    """Lend a path beside the warehouse; what is left there at the end is removed.

    So is what a process left that was killed: one publishes at a time, under the merge's lock.
    """
    make_folders(warehouse.parent)
    _remove_unfinished(warehouse.parent)
    remove_abandoned_links(warehouse.parent)
    try:
        yield warehouse.with_name(f"{_UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}")
    finally:
        _remove_unfinished(warehouse.parent)


def put_in_place(staged: Path, warehouse: Path) -> None:
    """Let a finished file take the published name, for good; it is only read from then on.

    A log that someone's own writing left belongs to the old file, and must not meet the new.
    """
    close_for_writing(staged)
    sync(staged)
    set_aside_foreign_wal(warehouse)
    staged.replace(warehouse)
    sync(warehouse.parent)


def parameters(sql: str) -> set[str]:
    """Return the names of the values that a statement takes."""
    code = "\n".join(line.partition("--")[0] for line in sql.splitlines())
    return {name for name in _PARAMETER.findall(code) if name}


def _named(sql: str, values: Values) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in parameters(sql)}


def _remove_unfinished(folder: Path) -> None:
    for path in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
