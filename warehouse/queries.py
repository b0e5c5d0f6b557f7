"""Questions to a published warehouse: rows, or files in a form for programs.

A connection is in memory and attaches the file read-only: it keeps the file it opened, never
blocks a publication, and a new one sees what is published now. Belongs here: connecting, running
one reading statement, writing its answer. Does not: how a table looks on a terminal.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, Literal

import duckdb

from warehouse import schema
from warehouse.errors import WarehouseError
from warehouse.opening_words import begins_as_reading
from warehouse.statements import statement
from warehouse.storage import Storage
from warehouse.strict_json import without_bare_numbers

FileForm = Literal["csv", "json", "parquet"]
_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""MULTI is a PIVOT, which names its columns in a step before; a COPY may hold one as well."""
_OPEN: Final = ("/dev/fd/", "/dev/std", "/proc/")
"""Where names stand for what a process has open."""
_LINKS_MAX: Final = 40
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

    The file appears whole or not at all; a link stays, and what it leads to is replaced. A device
    or a pipe gets the bytes. JSON is an array of objects, strictly: NaN and infinities are null.
    CSV has a header.

    Raises:
        QueryRefused: as `run_sql`.
        OSError: the file can't be written.
    """
    if _names_a_stream(target):
        # Never by a rename: whatever else is written there would lose it. Appended, since what
        # a shell redirected may hold something already.
        with target.open("ab") as stream:
            return stream_answer(connection, sql, stream, form)
    target = target.resolve()
    with Storage(target.parent).writing(target.name) as staged:
        return _written(connection, sql, staged, form)


def stream_answer(
    connection: duckdb.DuckDBPyConnection, sql: str, stream: BinaryIO, form: FileForm
) -> int:
    """Write the rows of one reading statement to an open stream; return how many.

    Nothing is written unless the statement runs to its end. Forms are those of `write_answer`.

    Raises:
        QueryRefused: as `run_sql`.
        OSError: the stream can't be written, or nobody reads it any more.
    """
    with TemporaryDirectory(prefix="almanac-answer-") as folder:
        answer = Path(folder) / form
        rows = _written(connection, sql, answer, form)
        with answer.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()
        return rows


def _names_a_stream(target: Path) -> bool:
    """Whether a path is a device or a pipe, or names what is open, which may be a file as well."""
    step = target.absolute()
    for _ in range(_LINKS_MAX):
        if str(step).startswith(_OPEN):
            return True
        if not step.is_symlink():
            break
        step = step.parent / step.readlink()
    return step.exists() and not step.is_file()


def _written(connection: duckdb.DuckDBPyConnection, sql: str, target: Path, form: FileForm) -> int:
    """Write to a file of our own, which may be left half there by an error."""
    with _explained():
        asked = _relation(connection, sql)
        values = {"file": str(target)}
        rows = connection.execute(statement(f"query_copy_{form}"), values).fetchall()
        if form == "json" and any(_may_be_no_number(str(one)) for one in asked.types):
            without_bare_numbers(target)
    return int(rows[0][0])


def _may_be_no_number(type_name: str) -> bool:
    return "DOUBLE" in type_name or "FLOAT" in type_name


def _relation(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    statements = connection.extract_statements(sql)
    if len(statements) == 2 and not any(one.query for one in statements):
        # To DuckDB before 2.0, a PIVOT is two statements without a text.
        kind = "MULTI"
    elif len(statements) != 1:
        raise QueryRefused(f"expected one statement, got {len(statements)}; run them one by one")
    else:
        kind = statements[0].type.name
    if kind not in _READING or (kind != "SELECT" and not begins_as_reading(sql)):
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
