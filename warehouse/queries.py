"""Questions to a published warehouse: rows, or files in a form for programs.

A connection is in memory and attaches the file read-only: it keeps the file it opened, never
blocks a publication, and a new one sees what is published now. It reaches nothing else. Belongs
here: connecting, running one reading statement, writing its answer. Does not: how a table looks
on a terminal.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, Literal

import duckdb

from warehouse import schema
from warehouse.attaching import attach_published
from warehouse.csv_formulas import without_formulas
from warehouse.errors import WarehouseError
from warehouse.opening_words import begins_as_reading, changes_what_is_locked, writes_inside
from warehouse.query_limits import Program, QueryLimits, Watch, restrict
from warehouse.statements import statement
from warehouse.storage import Storage
from warehouse.strict_json import without_bare_numbers
from warehouse.temporary import own_folder

FileForm = Literal["csv", "json", "parquet"]
_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""MULTI is a PIVOT, which names its columns in a step before; a COPY may hold one as well."""
_OPEN: Final = ("/dev/fd/", "/dev/std", "/proc/")
"""Where names stand for what a process has open."""
_LINKS_MAX: Final = 40
_SQL_CHARACTERS_MAX: Final = 1_000_000
_FETCHED: Final = 1000
_LIMITS: Final = QueryLimits()
_PROGRAM: Final = Program()
_numbers = count(1)


class QueryRefused(WarehouseError):
    """What was asked is not one statement that reads, or it fails. Nothing was changed."""


class NoFolder(QueryRefused):
    """An answer has a folder that is not there. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows as Python values, with the names and DuckDB types of their columns.

    `count` is how many rows there were, which may be more than were kept.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    count: int


def connect(
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = _LIMITS
) -> duckdb.DuckDBPyConnection:
    """Open a published warehouse for reading, on UTC. The caller closes it.

    SQL on it reaches the warehouse alone: no file, address, extension or Python variable, within
    the memory, threads and spilled bytes of `limits`, and no setting can be changed. (The time is
    kept by `run_sql` and the writing functions.) A data frame is lent with
    `connection.register("name", frame)`. `own_files` opens it to all that DuckDB can reach, as
    `FROM 'mine.csv'` and `FROM frame`, without limits: for SQL of your own, not of others.

    Raises:
        WarehouseError: there is none, or it can't be opened.
    """
    return _open(warehouse, () if not own_files else None, limits)


@contextmanager
def connected(
    warehouse: Path, *, own_files: bool = False, limits: QueryLimits = _LIMITS
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection as of `connect`, and close it."""
    connection = connect(warehouse, own_files=own_files, limits=limits)
    try:
        yield connection
    finally:
        connection.close()


def run_sql(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    *,
    rows_max: int | None = None,
    limits: QueryLimits = _LIMITS,
    program: Program = _PROGRAM,
) -> Answer:
    """Run one statement that reads; keep all of its rows, or the first `rows_max`.

    Raises:
        QueryRefused: it is not one statement, would write, takes too long, or fails; the message
            says how.
    """
    with _explained(Watch(connection, limits, program)):
        relation = _relation(connection, sql)
        columns, types = tuple(relation.columns), tuple(str(one) for one in relation.types)
        running = connection.execute(sql)
        rows: list[tuple[Any, ...]] = []
        number = 0
        while fetched := running.fetchmany(_FETCHED):
            number += len(fetched)
            rows += fetched if rows_max is None else fetched[: max(0, rows_max - len(rows))]
        return Answer(columns, types, rows, number)


def write_answer(
    warehouse: Path,
    sql: str,
    target: Path | BinaryIO,
    form: FileForm,
    *,
    formulas: bool = True,
    limits: QueryLimits = _LIMITS,
    program: Program = _PROGRAM,
) -> int:
    """Write the rows of one reading statement to a file or an open stream; return how many.

    A file appears whole or not at all; a link stays, and what it leads to is replaced. A stream, a
    device or a pipe gets the bytes once the statement ran to its end. JSON is an array of objects,
    strictly: NaN and infinities are null. CSV has a header; without `formulas`, text that a
    spreadsheet would run has a mark before it. The statement runs on a connection of its own,
    which can write nothing but this answer.

    Raises:
        WarehouseError: as `connect`.
        NoFolder: there is no folder for the file.
        QueryRefused: as `run_sql`, or the disk has no room for it.
        OSError: the file can't be written, or nobody reads the stream any more.
    """
    write = partial(
        _write, warehouse, sql, form=form, formulas=formulas, limits=limits, program=program
    )
    if not isinstance(target, Path):
        return _stream(write, target, form)
    if _names_a_stream(target):
        # Never by a rename: whatever else is written there would lose it. Appended, since what
        # a shell redirected may hold something already.
        with target.open("ab") as stream:
            return _stream(write, stream, form)
    file = target.resolve()
    if not file.parent.is_dir():
        raise NoFolder(
            f"{target} can't be written: there is no folder {file.parent}. Nothing was written; "
            "make the folder, or name a file in one that is there."
        )
    with Storage(file.parent).writing(file.name) as staged:
        return write(staged)


def _open(
    warehouse: Path, writable: Sequence[Path] | None, limits: QueryLimits
) -> duckdb.DuckDBPyConnection:
    """Open a warehouse; `writable` None leaves the connection open to everything."""
    if not warehouse.exists():
        raise WarehouseError(
            f"there is no warehouse at {warehouse} yet; `almanac run` or `almanac merge` makes it"
        )
    connection = duckdb.connect()
    alias = f"almanac_{next(_numbers)}"
    try:
        connection.execute("SET TimeZone = 'UTC'")
        attach_published(connection, warehouse, alias)
        connection.execute(schema.use(alias))
        if writable is not None:
            restrict(connection, limits, writable)
    except duckdb.Error as error:
        connection.close()
        raise WarehouseError(
            f"{warehouse} can't be opened: {error}. If another process writes to it, end that one: "
            "a warehouse is only read; if it is damaged, `almanac merge` makes it again."
        ) from error
    return connection


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


def _stream(write: Callable[[Path], int], stream: BinaryIO, form: FileForm) -> int:
    with TemporaryDirectory(prefix="answer-", dir=own_folder()) as folder:
        answer = Path(folder) / form
        rows = write(answer)
        with answer.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()
        return rows


def _write(
    warehouse: Path,
    sql: str,
    target: Path,
    *,
    form: FileForm,
    formulas: bool,
    limits: QueryLimits,
    program: Program,
) -> int:
    """Write to a file of our own, which may be left half there by an error."""
    connection = _open(warehouse, [target], limits)
    try:
        with _explained(Watch(connection, limits, program, answer=target)):
            asked = _relation(connection, sql)
            harmless = form == "csv" and not formulas
            connection.register("asked", without_formulas(asked) if harmless else asked)
            values = {"file": str(target)}
            rows = connection.execute(statement(f"query_copy_{form}"), values).fetchall()
            connection.unregister("asked")
            types = [str(one) for one in asked.types]
    finally:
        connection.close()
    if form == "json" and any(map(_may_be_no_number, types)):
        without_bare_numbers(target)
    return int(rows[0][0])


def _may_be_no_number(type_name: str) -> bool:
    return "DOUBLE" in type_name or "FLOAT" in type_name


def _relation(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    if len(sql) > _SQL_CHARACTERS_MAX:
        raise QueryRefused(f"it has {len(sql):,} characters, of at most {_SQL_CHARACTERS_MAX:,}")
    statements = connection.extract_statements(sql)
    if len(statements) == 2 and not any(one.query for one in statements):
        # To DuckDB before 2.0, a PIVOT is two statements without a text.
        kind = "MULTI"
    elif len(statements) != 1:
        raise QueryRefused(f"expected one statement, got {len(statements)}; run them one by one")
    else:
        kind = _kind(statements[0])
    reads = kind == "SELECT" or (kind in _READING and begins_as_reading(sql))
    if not reads or writes_inside(sql) or changes_what_is_locked(sql):
        raise QueryRefused(
            f"this would do more than read ({kind}), and a warehouse is only read: it is made "
            "anew from the lake. Copy it to a file of your own to write there."
        )
    return connection.sql(sql)


def _kind(one: duckdb.Statement) -> str:
    try:
        return one.type.name
    except ValueError:
        return "a statement that has no name in Python"


@contextmanager
def _explained(watch: Watch) -> Iterator[None]:
    """Turn what goes wrong in a query into a refusal that says what to do."""
    try:
        with watch:
            yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        said = watch.stopped or "it needs more memory than it may use (ALMANAC_SQL_MEMORY)"
        raise QueryRefused(f"the query was stopped: {said}") from error
    except duckdb.Error as error:
        if watch.stopped is not None:
            raise QueryRefused(f"the query was stopped: {watch.stopped}") from error
        raise QueryRefused(str(error)) from error
