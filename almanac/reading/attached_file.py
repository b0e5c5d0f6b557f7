"""Attaches the published file for reading.

It is attached through a hard link in a folder that is removed before the first query. DuckDB lets
SQL read and write every attached file and the `.wal` beside it, even if external access is off;
SQL can't open a name that no longer exists. A foreign `.wal` does not block readers either.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from time import time
from typing import Any, Final

import duckdb

from almanac.core.connections import close_within, describe_error, open_memory
from almanac.core.errors import QueryRefused, WarehouseError
from almanac.core.statements import NO_VALUES, quoted, quoted_text
from almanac.reading.query_check import reading_relation
from almanac.reading.query_limits import (
    NO_HOOKS,
    USUAL_LIMITS,
    QueryHooks,
    QueryLimits,
    QueryWatch,
    restrict,
)

_LINKS: Final = ".reading-"
_ABANDONED_AFTER_S: Final = 60.0
"""A link is removed within milliseconds. An older link was left by a killed process."""
_log = logging.getLogger(__name__)


def attach_published(connection: duckdb.DuckDBPyConnection, warehouse: Path, alias: str) -> None:
    """Attach a published file read-only; a foreign `.wal` is set aside first."""
    set_aside_foreign_wal(warehouse)
    with _linked(warehouse) as path:
        # No value can be bound in it.
        name = quoted(alias)
        try:
            connection.execute("ATTACH " + quoted_text(str(path)) + " AS " + name + " (READ_ONLY)")
        except duckdb.Error as error:
            raise type(error)(str(error).replace(str(path), str(warehouse))) from error


def set_aside_foreign_wal(warehouse: Path) -> Path | None:
    """Rename the `.wal` beside a published file; return its new name, None if there is no `.wal`.

    A file that Almanac publishes has no `.wal`, so another program wrote it, to this file or to
    an earlier one. DuckDB would apply it or refuse the file. The `.wal` is kept; its new name has
    the time when it was last written.
    """
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    with suppress(FileNotFoundError):
        written = datetime.fromtimestamp(wal.stat().st_mtime, UTC)
        name = f"{wal.name}.foreign-{written:%Y%m%dT%H%M%S%fZ}"
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        aside = next(path for path in map(wal.with_name, names) if not path.exists())
        try:
            wal.rename(aside)
        except FileNotFoundError:
            raise
        except OSError:
            # Not ours, or the disk is read-only. Our readers ignore it; `doctor` reports it.
            return None
        _log.warning(
            "%s was renamed to %s: another program wrote to the published file, which is "
            "read-only. Open it read-only there, or copy it to write.",
            wal,
            aside.name,
        )
        return aside
    return None


def remove_abandoned_links(folder: Path) -> None:
    for abandoned in list_abandoned_links(folder):
        with suppress(FileNotFoundError):
            shutil.rmtree(abandoned)


def list_abandoned_links(folder: Path) -> list[Path]:
    """Return the links that killed readers left."""
    abandoned: list[Path] = []
    for path in folder.glob(f"{_LINKS}*"):
        with suppress(FileNotFoundError):
            if time() - path.stat().st_mtime >= _ABANDONED_AFTER_S:
                abandoned.append(path)
    return abandoned


@contextmanager
def _linked(warehouse: Path) -> Iterator[Path]:
    """Yield a temporary hard link to the file, or the file's own path if none can be made.

    None can be made if another user owns the folder or the file, or the disk has no hard links.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=_LINKS, dir=warehouse.parent.resolve()))
    except OSError:
        yield warehouse
        return
    try:
        link = folder / warehouse.name
        try:
            os.link(warehouse.resolve(), link)
        except OSError:
            link = warehouse
        yield link
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_FETCHED: Final = 1000
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """Rows as Python values, with the names and DuckDB types of their columns.

    `count` is the number of rows of the result, which may be more than `rows` has.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    count: int


def connect(
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = USUAL_LIMITS
) -> duckdb.DuckDBPyConnection:
    """Open a published warehouse for reading, on UTC. The caller closes it, as `connected` does.

    SQL on it can access only the warehouse: no file, address, extension or Python variable. It has
    the memory, threads and spilled bytes of `limits`, and no setting can be changed. (`run_sql` and
    the writing functions interrupt a query after its time. Functions whose memory DuckDB does not
    count, or that do not check for interrupts, are bounded by a process alone: bounded_process.)
    Add a data frame with `connection.register("name", frame)`. `own_files` allows everything that
    DuckDB can access, as `FROM 'mine.csv'` and `FROM frame`, without limits: use it for your own
    SQL, not for others'.
    """
    return open_published(warehouse, () if not own_files else None, limits)


@contextmanager
def connected(
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = USUAL_LIMITS
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection as of `connect`; close it at the end, within the grace of `limits`."""
    connection = connect(warehouse, own_files=own_files, limits=limits)
    try:
        yield connection
    finally:
        close_within(connection, limits.grace_s)


def run_sql(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    *,
    values: Mapping[str, Any] = NO_VALUES,
    rows_max: int | None = None,
    limits: QueryLimits = USUAL_LIMITS,
    program: QueryHooks = NO_HOOKS,
) -> QueryAnswer:
    """Run one reading statement; return all of its rows, or the first `rows_max`.

    `values` has the texts for the named parameters of the statement, such as `$ts`.
    """
    with explain_query_errors(QueryWatch(connection, limits, program)):
        relation = reading_relation(connection, sql, values)
        columns, types = tuple(relation.columns), tuple(map(str, relation.types))
        running = connection.execute(sql, dict(values)) if values else connection.execute(sql)
        rows: list[tuple[Any, ...]] = []
        number = 0
        while fetched := running.fetchmany(_FETCHED):
            number += len(fetched)
            rows += fetched if rows_max is None else fetched[: max(0, rows_max - len(rows))]
        return QueryAnswer(columns, types, rows, number)


def open_published(
    warehouse: Path, writable: Sequence[Path] | None, limits: QueryLimits
) -> duckdb.DuckDBPyConnection:
    """Open a warehouse; `writable` None leaves the connection open to everything."""
    if not warehouse.exists():
        raise WarehouseError(
            f"there is no warehouse at {warehouse} yet; `almanac run` or `almanac merge` makes it"
        )
    connection = open_memory()
    alias = f"almanac_{next(_numbers)}"
    try:
        attach_published(connection, warehouse, alias)
        connection.execute("USE " + quoted(alias))
        if writable is not None:
            restrict(connection, limits, writable)
    except duckdb.Error as error:
        connection.close()
        reason = describe_error(error).rstrip("!.")
        raise WarehouseError(
            f"{warehouse} can't be opened: {reason}. If another process writes to it, stop that "
            "process: a warehouse is read-only. If it is damaged, `almanac rebuild` makes it again."
        ) from error
    return connection


@contextmanager
def explain_query_errors(watch: QueryWatch) -> Iterator[None]:
    """Turn the errors of a query into a QueryRefused whose message gives the next step."""
    try:
        with watch:
            yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        reason = watch.stopped or f"it needs more memory than {watch.limits.memory_name} allows"
        raise QueryRefused(f"the query was stopped: {reason}") from error
    except duckdb.Error as error:
        if watch.stopped is not None:
            raise QueryRefused(f"the query was stopped: {watch.stopped}") from error
        # An error without a class of its own is of C++, such as unordered_map::at.
        is_internal = isinstance(error, duckdb.InternalException | duckdb.FatalException)
        if is_internal or type(error) is duckdb.Error or "correlated columns" in str(error):
            raise QueryRefused(
                f"DuckDB can't run this statement: {describe_error(error)}. If a macro such as "
                "events_as_of has a column of another table as its timestamp, it must be in a "
                "subquery with one value: SELECT ts, (SELECT count(*) FROM events_as_of(ts)) FROM "
                "mine, where mine is a table or, for a view, (SELECT DISTINCT known_from AS ts "
                "FROM event_versions). Use db.attach_known for the next event of each row"
            ) from None
        # The macros explain an error in full; DuckDB's word for it adds nothing.
        raise QueryRefused(str(error).removeprefix("Invalid Input Error: ")) from error
