"""The published warehouse, opened for reading: one reading statement, its rows.

A connection is in memory and attaches the file read-only: it keeps the file it opened and never
blocks a publication; a new connection sees the current file. It can access nothing else. Belongs
here: connecting, running one reading statement. Does not: which statements only read
(statements), what a query may use (query_limits).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import duckdb

from almanac.errors import QueryRefused, WarehouseError
from almanac.reading.attaching import attach_published
from almanac.reading.connections import close_within, open_memory
from almanac.reading.named_sql import quoted
from almanac.reading.query_limits import QueryHooks, QueryLimits, QueryWatch, restrict
from almanac.reading.statements import reading_relation

_FETCHED: Final = 1000
_LIMITS: Final = QueryLimits()
_PROGRAM: Final = QueryHooks()
_NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})
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
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = _LIMITS
) -> duckdb.DuckDBPyConnection:
    """Open a published warehouse for reading, on UTC. The caller closes it, as `connected` does.

    SQL on it can access only the warehouse: no file, address, extension or Python variable. It has
    the memory, threads and spilled bytes of `limits`, and no setting can be changed. (`run_sql` and
    the writing functions interrupt a query after its time. Functions whose memory DuckDB does not
    count, or that do not check for interrupts, are bounded by a process alone: bounded_process.)
    Add a data frame with `connection.register("name", frame)`. `own_files` allows everything that
    DuckDB can access, as `FROM 'mine.csv'` and `FROM frame`, without limits: use it for your own
    SQL, not for others'.

    Raises:
        WarehouseError: there is no warehouse, or it can't be opened.
    """
    return open_published(warehouse, () if not own_files else None, limits)


@contextmanager
def connected(
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = _LIMITS
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
    values: Mapping[str, Any] = _NO_VALUES,
    rows_max: int | None = None,
    limits: QueryLimits = _LIMITS,
    program: QueryHooks = _PROGRAM,
) -> QueryAnswer:
    """Run one reading statement; return all of its rows, or the first `rows_max`.

    `values` has the texts for the named parameters of the statement, such as `$ts`.

    Raises:
        QueryRefused: it is not one statement, would write, takes too long, or fails; the message
            says how.
    """
    with explained(QueryWatch(connection, limits, program)):
        relation = reading_relation(connection, sql, values)
        columns, types = (
            tuple(relation.columns),
            tuple(str(column_type) for column_type in relation.types),
        )
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
        reason = str(error).rstrip("!.")
        raise WarehouseError(
            f"{warehouse} can't be opened: {reason}. If another process writes to it, stop that "
            "process: a warehouse is read-only. If it is damaged, `almanac replay` rebuilds it."
        ) from error
    return connection


@contextmanager
def explained(watch: QueryWatch) -> Iterator[None]:
    """Turn the errors of a query into a QueryRefused that says what to do."""
    try:
        with watch:
            yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        reason = watch.stopped or f"it needs more memory than {watch.limits.memory_name} allows"
        raise QueryRefused(f"the query was stopped: {reason}") from error
    except duckdb.Error as error:
        if watch.stopped is not None:
            raise QueryRefused(f"the query was stopped: {watch.stopped}") from error
        # The macros explain an error in full; DuckDB's word for it adds nothing.
        raise QueryRefused(str(error).removeprefix("Invalid Input Error: ")) from error
