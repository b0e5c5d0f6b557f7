"""The published file: under construction, put in place, and read for its own facts.

It takes the published name in one synced rename, or is removed.
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

from almanac.reading.attached_file import (
    attach_published,
    remove_abandoned_links,
    set_aside_foreign_wal,
)
from almanac.reading.connections import open_memory
from warehouse.files.storage import close_for_writing, make_folders, sync
from warehouse.making_limits import MakingLimits
from warehouse.publish.spare_file import drop_spare, keep_spare
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, open_spilling, parse

_UNFINISHED: Final = ".unfinished-warehouse-"
_PARAMETER: Final = re.compile(r"\$([a-z_]+)")
Values = Mapping[str, Any]
_SQL: Final = Statements(__package__, GROUPS)
FACT: Final = "content:"
"""Begins the names of these facts."""
PUBLISHED_AT: Final = "published_at"
PUBLICATION: Final = "publication"
"""The random id of a publication."""
REPLACED: Final = "replaced"
"""The id of the publication before it; empty after a full build."""
MONTHS: Final = "months"
"""The months whose events in the lake changed since the publication before it."""


class StagedFile:
    """A connection with the staged file attached and in use, in a transaction until `commit`."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self.connection = connection
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

    def finish(self) -> None:
        """Write everything to the file, and close it."""
        for text in ("CHECKPOINT staged", "USE memory", "DETACH staged"):
            self.connection.execute(text)

    def close(self) -> None:
        self.connection.close()


def open_making(
    staged: Path, limits: MakingLimits, *, warehouse: Path
) -> duckdb.DuckDBPyConnection:
    """Open a connection for a staged file; `warehouse` is a file of about the same size."""
    return open_spilling(staged.with_name(f"{staged.name}-spill"), limits, warehouse=warehouse)


@contextmanager
def staging(warehouse: Path) -> Iterator[Path]:
    """Yield a path beside the warehouse; a file left there at the end is removed.

    Files of killed processes are removed too: one process publishes at a time, under the merge
    lock.
    """
    make_folders(warehouse.parent)
    remove_unfinished(warehouse.parent)
    remove_abandoned_links(warehouse.parent)
    try:
        yield warehouse.with_name(f"{_UNFINISHED}{os.getpid()}-{uuid.uuid4().hex}")
    finally:
        remove_unfinished(warehouse.parent)


def put_in_place(staged: Path, warehouse: Path, *, keeping: bool) -> None:
    """Rename a finished file to the published name and sync; it is read-only from then on.

    A `.wal` that another program left belongs to the old file, and must not apply to the new one.
    `keeping` keeps the old file as the spare file.
    """
    close_for_writing(staged)
    sync(staged)
    set_aside_foreign_wal(warehouse)
    if keeping:
        keep_spare(warehouse)
    else:
        drop_spare(warehouse)
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


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files; only while no other process publishes."""
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
    """Return the metadata of a published file; None if the file does not exist.

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
