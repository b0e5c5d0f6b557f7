"""Answers of queries as files, in a form for programs.

Belongs here: writing the rows of one reading statement to a file or a stream. Does not: opening the
published file and running a statement (almanac.reading.published, whose names this module has
too), tables on a terminal.
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import BinaryIO, Final

from almanac.errors import QueryRefused
from almanac.reading.connections import close_within
from almanac.reading.published import (
    QueryAnswer,
    connect,
    connected,
    explained,
    open_published,
    run_sql,
)
from almanac.reading.query_limits import QueryHooks, QueryLimits, QueryWatch
from almanac.reading.statements import reading_relation
from almanac.reading.temporary import own_folder
from warehouse.answer_forms import FileForm, finish_file, in_form, names_a_stream
from warehouse.files.storage import Storage
from warehouse.sql import Statements

__all__ = [
    "FileForm",
    "NoFolder",
    "QueryAnswer",
    "QueryRefused",
    "connect",
    "connected",
    "run_sql",
    "write_answer",
]

_SQL = Statements(__package__)
_LIMITS: Final = QueryLimits()
_PROGRAM: Final = QueryHooks()
_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})


class NoFolder(QueryRefused):
    """The folder for an answer does not exist. Nothing was written."""


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
    connection = open_published(warehouse, [target], limits)
    try:
        with explained(QueryWatch(connection, limits, program, answer=target)):
            relation = reading_relation(connection, sql, values)
            connection.register("answer", in_form(relation, form, formulas=formulas))
            file = {"file": str(target)}
            rows = connection.execute(_SQL[f"copy_{form}"], file).fetchall()
            connection.unregister("answer")
            types = [str(column_type) for column_type in relation.types]
    finally:
        close_within(connection, limits.grace_s)
    finish_file(target, form, types)
    return int(rows[0][0])
