"""The rows of one reading statement as bytes: CSV, TSV, JSON or Parquet.

Belongs here: writing an answer to a file of our own or to a stream. Does not: a file of the user,
which the application puts in place by a rename (warehouse.queries), what a form looks like
(almanac.forms).
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import duckdb

from almanac.forms import (
    FileForm,
    finish_file,
    in_form,
    without_acting_characters,
)
from almanac.reading.connections import close_within
from almanac.reading.named_sql import NamedStatements, lists_names, reading_relation
from almanac.reading.published import explained, open_published
from almanac.reading.query_limits import QueryHooks, QueryLimits, QueryWatch
from almanac.reading.temporary import own_folder

_SQL = NamedStatements("almanac.reading")
_LIMITS: Final = QueryLimits()
_PROGRAM: Final = QueryHooks()
_NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})


def stream_answer(
    warehouse: Path,
    sql: str,
    stream: BinaryIO,
    form: FileForm,
    *,
    values: Mapping[str, Any] = _NO_VALUES,
    formulas: bool = True,
    limits: QueryLimits = _LIMITS,
    program: QueryHooks = _PROGRAM,
) -> int:
    """Write the rows to an open stream after the statement has ended; return how many.

    Raises: as `write_own_file`.
    """
    write = partial(
        write_own_file,
        *(warehouse, sql),
        form=form,
        values=values,
        formulas=formulas,
        limits=limits,
        program=program,
    )
    return copied(write, stream, form)


def copied(write: Callable[[Path], int], stream: BinaryIO, form: FileForm) -> int:
    """Let `write` make a file of our own, copy it to a stream, and return what `write` did.

    On a terminal, the characters of CSV that would act on it are escapes, as in all other forms.
    """
    with TemporaryDirectory(prefix="answer-", dir=own_folder()) as folder:
        answer = Path(folder) / form
        rows = write(answer)
        if form == "csv" and stream.isatty():
            without_acting_characters(answer)
        with answer.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()
        return rows


def write_own_file(
    warehouse: Path,
    sql: str,
    target: Path,
    *,
    values: Mapping[str, Any],
    form: FileForm,
    formulas: bool,
    limits: QueryLimits,
    program: QueryHooks,
) -> int:
    """Write to a file of our own, which an error may leave incomplete; return how many rows.

    The statement runs on its own connection, which can write only this file. JSON is strict: NaN
    and infinities are null, instants are ISO 8601. CSV and TSV have a header. Without `formulas`,
    text of a CSV that a spreadsheet would run gets a mark in front.

    Raises:
        WarehouseError: the warehouse can't be opened.
        QueryRefused: the statement would write, fails, takes too long, or the disk has no room.
        OSError: the file can't be written.
    """
    connection = open_published(warehouse, [target], limits)
    try:
        with explained(QueryWatch(connection, limits, program, answer=target)):
            relation = reading_relation(connection, sql, values)
            answer = in_form(relation, form, formulas=formulas)
            # A list of tables is made first: it would have the name that is registered here.
            fetched = answer.to_arrow_table() if lists_names(sql) else answer
            connection.register("answer", fetched)
            file = {"file": str(target)}
            rows = _copied(connection, _SQL[f"copy_{form}"], file)
            connection.unregister("answer")
            types = [str(column_type) for column_type in relation.types]
    finally:
        close_within(connection, limits.grace_s)
    finish_file(target, form, types)
    return rows


def _copied(connection: duckdb.DuckDBPyConnection, copy: str, file: dict[str, str]) -> int:
    """Write the answer; an error of the user's statement does not show ours around it."""
    try:
        ((rows,),) = connection.execute(copy, file).fetchall()
    except duckdb.Error as error:
        message, shows_line, _ = str(error).partition("\n\nLINE ")
        if not shows_line:
            raise
        raise type(error)(message) from error
    return int(rows)
