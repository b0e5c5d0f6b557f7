"""Questions to a published warehouse: rows, or files in a form for programs.

A connection is in memory and attaches the file read-only: it keeps the file it opened, never
blocks a publication, and a new one sees what is published now. Belongs here: connecting, running
one reading statement, writing its answer. Does not: how a table looks on a terminal.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import duckdb

from warehouse import schema
from warehouse.errors import WarehouseError
from warehouse.statements import statement
from warehouse.storage import Storage

FileForm = Literal["csv", "json", "parquet"]
_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""MULTI is a PIVOT, which names its columns in a step before."""
_numbers = count(1)


class QueryRefused(WarehouseError):
    """What was asked is not one statement that reads, or it fails. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows as Python values, with the names and DuckDB types of their columns."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def connect(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """Open a published warehouse for reading, on UTC. The caller closes it.

    Raises:
        WarehouseError: there is none, or it can't be opened.
    """
    if not warehouse.exists():
        raise WarehouseError(
            f"there is no warehouse at {warehouse} yet; `almanac run` or `almanac merge` makes it"
        )
    connection = duckdb.connect()
    alias = f"almanac_{next(_numbers)}"
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(schema.attach(warehouse, alias, read_only=True))
        connection.execute(schema.use(alias))
    except duckdb.Error as error:
        connection.close()
        raise WarehouseError(
            f"{warehouse} can't be opened: {error}. If another process writes to it, end that one: "
            "a warehouse is only read; if it is damaged, `almanac merge` makes it again."
        ) from error
    return connection


@contextmanager
def connected(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection, and close it."""
    connection = connect(warehouse)
    try:
        yield connection
    finally:
        connection.close()


def run_sql(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    """Run one statement that reads.

    Raises:
        QueryRefused: it is not one statement, would write, or fails; the message says how.
    """
    with _explained():
        relation = _relation(connection, sql)
        rows = relation.fetchall()
        types = tuple(str(one) for one in relation.types)
        return Answer(tuple(relation.columns), types, rows)


def write_answer(
    connection: duckdb.DuckDBPyConnection, sql: str, target: Path, form: FileForm
) -> int:
    """Write the rows of one reading statement to a file; return how many.

    The file appears whole or not at all, unless it is a device, such as /dev/stdout. JSON is an
    array of objects; CSV has a header.

    Raises:
        QueryRefused: as `run_sql`.
    """
    with _explained():
        if target.exists() and not target.is_file():
            return _copy(connection, sql, target, form)
        with Storage(target.parent).writing(target.name) as staged:
            return _copy(connection, sql, staged, form)


def _copy(connection: duckdb.DuckDBPyConnection, sql: str, target: Path, form: FileForm) -> int:
    # DuckDB finds the relation by the name of this variable.
    asked = _relation(connection, sql)  # noqa: F841
    rows = connection.execute(statement(f"query_copy_{form}"), {"file": str(target)}).fetchall()
    return int(rows[0][0])


def _relation(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    statements = connection.extract_statements(sql)
    if len(statements) == 2 and not any(one.query for one in statements):
        # To DuckDB before 2.0, a PIVOT is two statements without a text.
        return connection.sql(sql)
    if len(statements) != 1:
        raise QueryRefused(f"expected one statement, got {len(statements)}; run them one by one")
    kind = statements[0].type.name
    if kind not in _READING:
        raise QueryRefused(
            f"this would do more than read ({kind}), and a warehouse is only read: it is made "
            "anew from the lake. Copy it to a file of your own to write there."
        )
    return connection.sql(sql)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from error
