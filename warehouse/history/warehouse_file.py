"""warehouse.duckdb: the next file while a merge makes it, and the facts of the published one.

    warehouse.duckdb           the published file; it is never changed
    .next-warehouse.duckdb     its successor: a copy that a merge changes, checks and renames

The file has the tables that people read (schema `main`), what the next merge needs (`state`), and
internal macros and facts (`_almanac`). A killed merge leaves a next file, which the next merge
removes. DuckDB's blocks have checksums: a damaged file can't be opened or read, and `almanac
rebuild` makes it again.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from almanac.core.connections import open_memory, parse
from almanac.core.errors import WarehouseError
from almanac.core.files import make_folders, own_folder, sync
from almanac.core.statements import NO_VALUES, Statements
from almanac.reading.attached_file import (
    attach_published,
    remove_abandoned_links,
    set_aside_foreign_wal,
)
from warehouse.files.storage import Storage, close_for_writing
from warehouse.history.observations import FoldKey, unify_disk_errors
from warehouse.home import Home
from warehouse.landing.batches import RANK
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS

_SQL = Statements(__package__, GROUPS)
_NEXT: Final = ".next-"
_RANKED: Final = tuple(sorted(RANK, key=lambda feed: RANK[feed]))
TABLES_FACT: Final = "tables"
"""The key under which the file stores the hash of the declared tables."""
VIEWS_FACT: Final = "views"
"""The key under which the file stores the hash of the declared views and macros."""
SEPARATOR_FACT: Final = "list_separator"
"""The key under which the file stores the list separator of exports."""
SECONDS_FACT: Final = "fold_seconds"
"""The key under which the file stores the seconds that its batches took to merge."""


@cache
def hash_tables() -> str:
    """Return a hash of the declared tables. A file with another hash is rebuilt from landing."""
    return _hash_texts(*ddl.create_tables(), _SQL["create_state"])


@cache
def hash_views() -> str:
    """Return a hash of the views and macros: a merge renews them in a file with another hash."""
    return _hash_texts(*ddl.create_views())


def _hash_texts(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MergedBatch:
    """A batch of a file: its status, and whether it was folded as released."""

    status: str
    released: bool
    observed_at: datetime

    @property
    def day(self) -> date:
        return self.observed_at.date()


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """The facts of a published file. `at` is the machine's time when it was written.

    `feed_id` is the identity of the feed of changes. `last_key` is the fold key of its last batch.
    `days` has the content of each observed day, a text that differs if the versions of the day do.
    """

    publication: str
    feed_id: str
    at: datetime
    facts: Mapping[str, str]
    batches: Mapping[str, MergedBatch]
    last_key: FoldKey | None
    days: Mapping[date, str]

    @property
    def has_current_tables(self) -> bool:
        return self.facts.get(TABLES_FACT) == hash_tables()


def read_published(
    path: Path, connection: duckdb.DuckDBPyConnection | None = None
) -> PublishedFile | None:
    """Return the facts of a file; None if there is none, or another format of Almanac made it.

    Opening a database takes 15 ms: `connection` is open and has no file.

    Raises:
        duckdb.Error: it can't be read.
    """
    if not path.is_file():
        return None
    with ExitStack() as stack:
        if connection is None:
            connection = stack.enter_context(closing(open_memory()))
        attach_published(connection, path, "warehouse")
        stack.callback(detach, connection)
        try:
            set_search_path(connection)
            facts = dict(_rows(connection, "read_facts"))
        except duckdb.CatalogException:
            return None
        named = dict(_rows(connection, "read_publication"))
        batches = {
            batch_id: MergedBatch(*found) for batch_id, *found in _rows(connection, "list_merged")
        }
        days = {day: content for day, _, content in _rows(connection, "list_days")}
        return PublishedFile(
            named["publication"],
            named.get("feed_id", ""),
            datetime.fromisoformat(named["published_at"]),
            facts,
            batches,
            next(iter(_rows(connection, "find_last_key", feeds=list(_RANKED))), None),
            days,
        )


def read_records(
    path: Path, *, since: date = date.min, until: date = date.max
) -> dict[str, dict[str, Any]]:
    """Return the accounts of the batches of a file by id, of those observed on some days.

    Returns nothing if there is no file, or another format of Almanac made it.

    Raises:
        WarehouseError: it can't be read.
    """
    if not path.is_file():
        return {}
    try:
        with closing(open_memory()) as connection:
            attach_published(connection, path, "warehouse")
            set_search_path(connection)
            rows = _rows(connection, "list_records", since=since, until=until)
    except duckdb.CatalogException:
        return {}
    except duckdb.Error as error:
        raise unreadable_file(path, error) from error
    return {batch_id: msgspec.json.decode(record) for batch_id, record in rows}


def find_damage(connection: duckdb.DuckDBPyConnection, path: Path) -> str | None:
    """Attach a file as `warehouse` and read all of its rows; return why that is not possible.

    DuckDB compares the checksum of each block that it reads. Returns None if the file is sound.
    """
    try:
        attach_published(connection, path, "warehouse")
        connection.execute("USE warehouse")
        for schema, name in _rows(connection, "list_tables"):
            connection.execute(ddl.read_all(schema, name)).fetchall()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    return None


def find_file_damage(home: Home, path: Path) -> str | None:
    """Return why a file of a home can't be read, as `find_damage`, on a connection of its own."""
    with closing(home.connect()) as connection:
        return find_damage(connection, path)


def unreadable_file(path: Path, why: duckdb.Error | str) -> WarehouseError:
    """Return the error for a file that DuckDB can't read."""
    return WarehouseError(
        f"{path} can't be read: {str(why).splitlines()[0]}. It is damaged, or another program "
        "writes to it. Nothing was lost; `almanac rebuild` makes it again from landing."
    )


def _rows(connection: duckdb.DuckDBPyConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(_SQL[name], values).fetchall()


def set_search_path(connection: duckdb.DuckDBPyConnection) -> None:
    """Set the search path, so that statements can use the tables of the attached file without its
    name."""
    connection.execute("SET search_path = 'warehouse.main,warehouse.state'")


def detach(connection: duckdb.DuckDBPyConnection) -> None:
    """Detach the file, so that the connection can be used for another."""
    connection.execute("USE memory")
    connection.execute("DETACH warehouse")


class NextFile:
    """The next file, open for writing."""

    def __init__(
        self, home: Home, path: Path, connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        self.path = path
        self._home = home
        self.connection = self._open(connection)

    def _open(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        connection = connection or self._home.connect()
        try:
            connection.execute(ddl.attach(self.path, "warehouse", read_only=False))
            set_search_path(connection)
            connection.execute(_SQL["define_macros"])
            self.facts = dict(_rows(connection, "read_facts"))
        except BaseException:
            connection.close()
            raise
        return connection

    def reopen(self) -> None:
        """Drop the transaction in progress with all temporary tables, after a failure."""
        self.connection.close()
        self.connection = self._open()

    def run(self, statement: str, parts: Mapping[str, str] = NO_VALUES, /, **values: Any) -> None:
        """Run a statement of this package, filled with these parts."""
        self.connection.execute(_SQL.fill(statement, **parts), values)

    def rows(
        self, statement: str, parts: Mapping[str, str] = NO_VALUES, /, **values: Any
    ) -> list[tuple[Any, ...]]:
        return self.connection.execute(parse(_SQL.fill(statement, **parts)), values).fetchall()

    def note_fact(self, name: str, value: str) -> None:
        """Write a fact; it replaces the fact of the same name."""
        self.run("note_fact", name=name, value=value)
        self.facts[name] = value

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end. After an error nothing is committed: `reopen` drops the rest."""
        self.connection.execute("BEGIN")
        yield
        self.connection.execute("COMMIT")

    def declare_views(self) -> None:
        if self.facts.get(VIEWS_FACT) == hash_views():
            return
        with self.transaction():
            for kind, schema, name in self.rows("list_views_and_macros"):
                self.connection.execute(ddl.drop(kind, schema, name))
            for text in ddl.create_views():
                self.connection.execute(text)
            self.note_fact(VIEWS_FACT, hash_views())

    def checkpoint(self) -> None:
        """Write all committed data to the file, so that it needs no `.wal`."""
        self.connection.execute("CHECKPOINT warehouse")

    def publish(self) -> None:
        """Close the file and rename it to the published name; it is read-only from then on.

        A `.wal` that another program left belongs to the old file, and must not apply to this one.
        """
        self.checkpoint()
        detach(self.connection)
        close_for_writing(self.path)
        sync(self.path)
        set_aside_foreign_wal(self._home.warehouse)
        self.path.replace(self._home.warehouse)
        sync(self._home.root)


@contextmanager
def open_next_file(
    home: Home, base: Path | None, connection: duckdb.DuckDBPyConnection | None = None
) -> Iterator[NextFile]:
    """Yield a copy of a file, or an empty one; it is removed at the end unless it was published.

    Raises:
        WarehouseError: the base can't be read.
    """
    make_folders(home.root)
    remove_next_files(home)
    path = home.root / f"{_NEXT}{home.warehouse.name}"
    try:
        with unify_disk_errors():
            if base is None:
                path.write_bytes(_empty_file())
            else:
                shutil.copyfile(base, path)
            try:
                file = NextFile(home, path, connection)
            except duckdb.Error as error:
                raise unreadable_file(base or path, error) from error
            is_open = False
            try:
                file.declare_views()
                yield file
                is_open = connection is not None and file.connection is connection
            finally:
                if not is_open:
                    file.connection.close()
    finally:
        remove_next_files(home)


def remove_next_files(home: Home) -> None:
    """Remove the files of a killed merge and the links of killed readers. Needs the merge lock."""
    for path in home.root.glob(f"{_NEXT}*"):
        path.unlink()
    for folder in (home.root, home.checkpoints.root):
        remove_abandoned_links(folder)


@cache
def _empty_file() -> bytes:
    """Return a file with all declarations and no rows.

    Declaring it takes 0.3 s, so it is kept as Python keeps compiled modules: beside them, if that
    folder can be written.
    """
    key = _hash_texts(duckdb.__version__, hash_tables(), hash_views())
    kept = Path(cache_from_source(__file__)).with_suffix(f".{key[:16]}.duckdb")
    with suppress(OSError):
        return kept.read_bytes()
    content = _declare_empty_file()
    with suppress(OSError):
        Storage(kept.parent).put(kept.name, content)
    return content


def _declare_empty_file() -> bytes:
    with tempfile.TemporaryDirectory(dir=own_folder()) as folder:
        path = Path(folder) / "empty.duckdb"
        with closing(open_memory()) as connection:
            connection.execute(ddl.attach(path, "warehouse", read_only=False))
            connection.execute("USE warehouse")
            connection.execute("BEGIN")
            for text in (*ddl.create_tables(), _SQL["create_state"], *ddl.create_views()):
                connection.execute(text)
            for name, value in ((TABLES_FACT, hash_tables()), (VIEWS_FACT, hash_views())):
                connection.execute(_SQL["note_fact"], {"name": name, "value": value})
            connection.execute("COMMIT")
        return path.read_bytes()
