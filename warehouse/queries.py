"""Queries on a published warehouse: rows, or files in a form for programs.

A connection is in memory and attaches the file read-only: it keeps the file it opened and never
blocks a publication; a new connection sees the current file. It can access nothing else.
Statements that do not only read are refused: `EXPLAIN ANALYZE` runs what it explains, DuckDB types
a PIVOT inside a COPY as PIVOT, and a SELECT may have a COPY or an INSERT in its WITH. Belongs here:
connecting, running one reading statement, writing its answer. Does not: tables on a terminal.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import duckdb

from warehouse.answer_forms import FileForm, finish_file, in_form, names_a_stream
from warehouse.attaching import attach_published
from warehouse.connections import DUCKDB_MAJOR, close_within, open_memory
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.files.temporary import own_folder
from warehouse.query_limits import QueryHooks, QueryLimits, QueryWatch, restrict
from warehouse.schema import ddl
from warehouse.sql import Statements

_SQL = Statements(__package__)

_EXPLAINING: Final = frozenset({"explain", "analyze", "verbose"})
_OPENING_WORDS: Final = frozenset(
    {
        *("select", "from", "with", "values", "table"),
        *("pivot", "pivot_wider", "pivot_longer", "unpivot"),
        *("describe", "desc", "show", "summarize"),
        # After a SELECT in brackets.
        *("union", "except", "intersect", "order", "limit", "offset"),
    }
)
_WRITING: Final = frozenset({"copy", "insert", "update", "delete", "merge", "truncate"})
_BEFORE_A_BODY: Final = frozenset({"as", "materialized"})
_PAST_A_LOCK: Final = frozenset(
    {
        *("enable_logging", "disable_logging", "enable_profiling", "disable_profiling"),
        "json_execute_serialized_sql",  # It may run any statement.
    }
)
"""Functions through which DuckDB before 2.0 changes a locked configuration. Later it refuses."""
_LOCK_HOLDS: Final = DUCKDB_MAJOR >= 2
_ENDS_WORD: Final = re.compile(r"\s|/\*|--")
"""DuckDB before 2.0 adds a comment to the word before it."""
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


def begins_as_reading(sql: str) -> bool:
    """Whether the first word, after EXPLAIN and outside brackets, is one that reads."""
    for word in _words(sql):
        if word not in _EXPLAINING:
            return word in _OPENING_WORDS
    # The whole statement is in brackets, which only a SELECT can be.
    return True


def writes_inside(sql: str) -> bool:
    """Whether the body of a WITH begins with a word that writes."""
    before = ("", "")
    for word, _ in _words_and_depths(sql):
        if word in _WRITING and before[1] == "(" and before[0] in _BEFORE_A_BODY:
            return True
        before = (before[1], word)
    return False


def changes_what_is_locked(sql: str) -> bool:
    """Whether a function is called that changes a locked configuration; a name alone is none."""
    if _LOCK_HOLDS:
        return False
    tokens = [*_tokens(sql), "", ""]
    for name, bracket, text, end in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        called = _first_word(name).strip('"') if bracket[:1] == "(" else ""
        if called in _PAST_A_LOCK:
            return True
        if called == "query":
            inner = _TEXT.fullmatch(text)
            # A concatenated text could contain anything.
            if end != ")" or inner is None or changes_what_is_locked(inner[1].replace("''", "'")):
                return True
    return False


def _words(sql: str) -> Iterator[str]:
    """Yield the words outside brackets, in small letters."""
    return (word for word, depth in _words_and_depths(sql) if depth == 0 and word not in "()")


def _words_and_depths(sql: str) -> Iterator[tuple[str, int]]:
    """Yield words and brackets, in small letters, with their depth in brackets."""
    depth = 0
    for token in _tokens(sql):
        if token[:1] == ")":
            depth -= 1
        yield _first_word(token), depth
        if token[:1] == "(":
            depth += 1


def _first_word(token: str) -> str:
    return _ENDS_WORD.split(token, 1)[0].lower()


def _tokens(sql: str) -> Iterator[str]:
    text = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(text)]
    for (start, kind), end in zip(tokens, ends, strict=True):
        token = text[start:end].strip()
        if kind != duckdb.token_type.comment and token:
            yield token.decode("utf-8", "replace")


_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""MULTI is a PIVOT, which finds its columns in an earlier step; a COPY may contain one as well."""
_SQL_CHARACTERS_MAX: Final = 1_000_000
_FETCHED: Final = 1000
_LIMITS: Final = QueryLimits()
_PROGRAM: Final = QueryHooks()
_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})
_numbers = count(1)


class QueryRefused(WarehouseError):
    """The query is not one reading statement, or it failed. Nothing was changed."""


class NoFolder(QueryRefused):
    """The folder for an answer does not exist. Nothing was written."""


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
    the writing functions enforce the time.) Add a data frame with
    `connection.register("name", frame)`. `own_files` allows everything that DuckDB can access, as
    `FROM 'mine.csv'` and `FROM frame`, without limits: use it for your own SQL, not for others'.

    Raises:
        WarehouseError: there is no warehouse, or it can't be opened.
    """
    return _open(warehouse, () if not own_files else None, limits)


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
    values: Mapping[str, str] = _NO_VALUES,
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
    with _explained(QueryWatch(connection, limits, program)):
        relation = _relation(connection, sql, values)
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


def write_answer(
    warehouse: Path,
    sql: str,
    target: Path | BinaryIO,
    form: FileForm,
    *,
    values: Mapping[str, str] = _NO_VALUES,
    formulas: bool = True,
    limits: QueryLimits = _LIMITS,
    program: QueryHooks = _PROGRAM,
) -> int:
    """Write the rows of one reading statement to a file or an open stream; return how many.

    A file appears complete or not at all; a link is kept, and its target is replaced. A stream, a
    device or a pipe gets the bytes after the statement has ended. JSON is an array of objects, and
    strict: NaN and infinities are null, instants are ISO 8601. CSV and TSV have a header. Without
    `formulas`, text of a CSV that a spreadsheet would run gets a mark in front. TSV is escaped as
    `with_escaped_fields` does. The statement runs on its own connection, which can write only this
    answer.

    Raises:
        WarehouseError: as `connect`.
        NoFolder: there is no folder for the file.
        QueryRefused: as `run_sql`, or the disk has no room for it.
        OSError: the file can't be written, or nobody reads the stream any more.
    """
    write = partial(
        _write,
        warehouse,
        sql,
        values=values,
        form=form,
        formulas=formulas,
        limits=limits,
        program=program,
    )
    if not isinstance(target, Path):
        return _stream(write, target, form)
    if names_a_stream(target):
        # Not by a rename: other writers to the same stream would lose it. Appended, since a file
        # that a shell redirected to may have content already.
        with target.open("ab") as stream:
            return _stream(write, stream, form)
    file = target.resolve()
    if not file.parent.is_dir():
        raise NoFolder(
            f"{target} can't be written: there is no folder {file.parent}. Nothing was written; "
            "create the folder, or name a file in an existing one."
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
    connection = open_memory()
    alias = f"almanac_{next(_numbers)}"
    try:
        attach_published(connection, warehouse, alias)
        connection.execute(ddl.use(alias))
        if writable is not None:
            restrict(connection, limits, writable)
    except duckdb.Error as error:
        connection.close()
        raise WarehouseError(
            f"{warehouse} can't be opened: {error}. If another process writes to it, stop that "
            "process: a warehouse is read-only. If it is damaged, `almanac replay` rebuilds it."
        ) from error
    return connection


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
    values: Mapping[str, str],
    form: FileForm,
    formulas: bool,
    limits: QueryLimits,
    program: QueryHooks,
) -> int:
    """Write to a file of our own, which an error may leave incomplete."""
    connection = _open(warehouse, [target], limits)
    try:
        with _explained(QueryWatch(connection, limits, program, answer=target)):
            relation = _relation(connection, sql, values)
            connection.register("answer", in_form(relation, form, formulas=formulas))
            file = {"file": str(target)}
            rows = connection.execute(_SQL[f"copy_{form}"], file).fetchall()
            connection.unregister("answer")
            types = [str(column_type) for column_type in relation.types]
    finally:
        close_within(connection, limits.grace_s)
    finish_file(target, form, types)
    return int(rows[0][0])


def _relation(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, str]
) -> duckdb.DuckDBPyRelation:
    if len(sql) > _SQL_CHARACTERS_MAX:
        raise QueryRefused(f"it has {len(sql):,} characters; the limit is {_SQL_CHARACTERS_MAX:,}")
    statements = connection.extract_statements(sql)
    if len(statements) == 2 and not any(statement.query for statement in statements):
        # DuckDB before 2.0 splits a PIVOT into two statements without a text.
        kind = "MULTI"
    elif len(statements) != 1:
        raise QueryRefused(f"expected one statement, got {len(statements)}; run them one by one")
    else:
        kind = _kind(statements[0])
    reads = kind == "SELECT" or (kind in _READING and begins_as_reading(sql))
    if not reads or writes_inside(sql) or changes_what_is_locked(sql):
        raise QueryRefused(
            f"this statement does more than read ({kind}), and a warehouse is read-only: each "
            "publication replaces it. Copy it to a file of your own to write there."
        )
    _check_values(values, set().union(*(statement.named_parameters for statement in statements)))
    return connection.sql(_without_semicolon(sql), params=dict(values) or None)


def _without_semicolon(sql: str) -> str:
    """Return one statement up to its semicolon: DuckDB puts its text into another statement."""
    text = sql.encode()
    ends = [start for start, _ in duckdb.tokenize(sql)]
    for start, end in zip(reversed(ends), reversed([*ends[1:], len(text)]), strict=True):
        if text[start:end].strip()[:1] == b";":
            text = text[:start]
        elif not text[start:end].startswith((b"--", b"/*")):
            break
    return text.decode()


def _check_values(values: Mapping[str, str], parameters: set[str]) -> None:
    missing, unused = sorted(parameters - set(values)), sorted(set(values) - parameters)
    if missing:
        raise QueryRefused(
            f"the parameter ${missing[0]} has no value: --param {missing[0]}=VALUE. The statement "
            "was not run."
        )
    if unused:
        raise QueryRefused(
            f"the statement has no parameter ${unused[0]}, but got a value for it. It was not run."
        )


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:
        return "a statement that has no name in Python"


@contextmanager
def _explained(watch: QueryWatch) -> Iterator[None]:
    """Turn the errors of a query into a QueryRefused that says what to do."""
    try:
        with watch:
            yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        reason = watch.stopped or "it needs more memory than ALMANAC_SQL_MEMORY allows"
        raise QueryRefused(f"the query was stopped: {reason}") from error
    except duckdb.Error as error:
        if watch.stopped is not None:
            raise QueryRefused(f"the query was stopped: {watch.stopped}") from error
        raise QueryRefused(str(error)) from error
