"""The published file: under construction, put in place, and read for its own facts.

It takes the published name in one synced rename, or is removed. Its sha256 is recorded in another
file before the rename, together with the hash of the previous file, so the published file is known
whichever of the two a crash leaves. If the record is lost, the next publication writes it again.

    state/published.json
"""

import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from almanac.reading.attached_file import (
    attach_published,
    remove_abandoned_links,
    set_aside_foreign_wal,
)
from almanac.reading.connections import open_memory
from warehouse.files.documents import format_document, hash_file, read_sealed, seal
from warehouse.files.storage import Storage, close_for_writing, make_folders, sync
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.sql import MakingLimits, Statements, open_spilling, parse

NOTE: Final = "published.json"
_UNFINISHED: Final = ".unfinished-warehouse-"
_PARAMETER: Final = re.compile(r"\$([a-z_]+)")
Values = Mapping[str, Any]
_SQL: Final = Statements(__package__, GROUPS)
FACT: Final = "content:"
"""Begins the names of these facts."""
PUBLISHED_AT: Final = "published_at"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    before: str | None


def note_published(state: Storage | None, staged: Path, warehouse: Path) -> None:
    """Record the hash of a file before it is published, and the hash of the file it replaces."""
    if state is None:
        return
    before = _read(state)
    is_of_it = before is not None and warehouse.exists()
    note = _Note(sha256=hash_file(staged), before=before.sha256 if before and is_of_it else None)
    state.put(NOTE, seal(format_document(note)))


def read_published_hashes(state: Storage) -> tuple[str, ...]:
    """Return the hashes that the published file may have; none if they are not known."""
    note = _read(state)
    return () if note is None else tuple(digest for digest in (note.sha256, note.before) if digest)


def _read(state: Storage) -> _Note | None:
    try:
        return read_sealed(state.read(NOTE), _Note)
    except (OSError, ValueError):
        return None


class StagedFile:
    """A connection with the staged file attached and in use, in a transaction until `commit`."""

    def __init__(self, path: Path, limits: MakingLimits) -> None:
        self.path = path
        self.connection = open_spilling(
            path.with_name(f"{path.name}-spill"), limits, warehouse=path
        )
        self.connection.execute(ddl.attach(path, "staged", read_only=False))
        self.connection.execute("USE staged")
        self.begin()

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def copy_declarations(self, empty: bytes) -> None:
        """Make the schemas, tables, views, macros and comments of another file, an empty one."""
        other = self.path.with_name(f"{self.path.name}-empty")
        other.write_bytes(empty)
        self.connection.execute(ddl.attach(other, "empty", read_only=True))
        self.connection.execute("COPY FROM DATABASE empty TO staged (SCHEMA)")
        for text in ("COMMIT", "DETACH empty"):
            self.connection.execute(text)
        other.unlink()
        self.begin()

    def run(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Run one statement, bound to those values that it names."""
        return self.connection.execute(parse(sql), _named(sql, values or {})).fetchall()

    def run_beside(self, sql: str, values: Values) -> None:
        """Run one statement on its own connection, which sees committed data.

        For threads: a connection runs one statement at a time.
        """
        with self.connection.cursor() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(sql, _named(sql, values))

    def commit_so_far(self) -> None:
        """Commit the data so far to free memory, and begin the next transaction.

        For a full build: the file counts only after its rename, however many transactions.
        """
        for text in ("COMMIT", "BEGIN"):
            self.connection.execute(text)

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def checkpoint(self) -> None:
        """Write all committed data to the file, so that it needs no `.wal`."""
        self.connection.execute("CHECKPOINT staged")

    def close(self) -> None:
        for text in ("CHECKPOINT staged", "USE memory", "DETACH staged"):
            self.connection.execute(text)
        self.connection.close()

    def abandon(self) -> None:
        self.connection.close()


@contextmanager
def staging(warehouse: Path) -> Iterator[Path]:
    """Yield a path beside the warehouse; a file left there at the end is removed.

    Files of killed processes are removed too: one process publishes at a time, under the merge
    lock.
    """
    make_folders(warehouse.parent)
    _remove_unfinished(warehouse.parent)
    remove_abandoned_links(warehouse.parent)
    try:
        yield warehouse.with_name(f"{_UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}")
    finally:
        _remove_unfinished(warehouse.parent)


def put_in_place(staged: Path, warehouse: Path) -> None:
    """Rename a finished file to the published name and sync; it is read-only from then on.

    A `.wal` that another program left belongs to the old file, and must not apply to the new one.
    """
    close_for_writing(staged)
    sync(staged)
    set_aside_foreign_wal(warehouse)
    staged.replace(warehouse)
    sync(warehouse.parent)


@cache
def parameters(sql: str) -> frozenset[str]:
    """Return the names of the parameters of a statement."""
    code = "\n".join(line.partition("--")[0] for line in sql.splitlines())
    return frozenset(_PARAMETER.findall(code))


def _named(sql: str, values: Values) -> dict[str, Any]:
    names = parameters(sql)
    return {name: value for name, value in values.items() if name in names}


def _remove_unfinished(folder: Path) -> None:
    for path in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def read_contents(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the contents that the facts of a file have, by table."""
    return {
        name.removeprefix(FACT): value for name, value in facts.items() if name.startswith(FACT)
    }


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A published file. `days` has the hash of the change log's file of each day.

    `at` is when it was published, by the machine that did it; a copy says the same. It is None if
    an older Almanac made the file. `contents` has the hash of the content of each table.
    """

    at: datetime | None
    days: dict[date, str]
    contents: dict[str, str] = field(default_factory=dict)


def read_published(warehouse: Path) -> PublishedFile | None:
    """Return the metadata stored in a published file; None if there is no file.

    Raises:
        duckdb.Error: it can't be read.
    """
    if not warehouse.exists():
        return None
    with _opened(warehouse) as connection:
        facts = dict(connection.execute(_SQL["list_facts"]).fetchall())
        days = dict(connection.execute(_SQL["list_published_chain"]).fetchall())
    at = facts.get(PUBLISHED_AT)
    published_at = None if at is None else datetime.fromisoformat(at)
    return PublishedFile(published_at, days, read_contents(facts))


def published_batches(warehouse: Path, days: Collection[date]) -> frozenset[str]:
    """Return the ids of the published batches that were observed on some days.

    Raises:
        duckdb.Error: the file can't be read.
    """
    with _opened(warehouse) as connection:
        rows = connection.execute(_SQL["list_batches_of_days"], {"days": list(days)}).fetchall()
    return frozenset(batch_id for (batch_id,) in rows)


@contextmanager
def _opened(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(open_memory()) as connection:
        attach_published(connection, warehouse, "published")
        connection.execute(ddl.use("published"))
        yield connection
