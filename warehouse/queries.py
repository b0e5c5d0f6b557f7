"""Answers of queries as files, in a form for programs.

Belongs here: writing the rows of one reading statement to a file or a stream. Does not: opening the
published file and running a statement (almanac.reading.published, whose names this module has
too), tables on a terminal.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

from almanac.errors import QueryRefused
from almanac.forms import FileForm, names_a_stream
from almanac.reading.answers import copied, write_own_file
from almanac.reading.published import QueryAnswer, connect, connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits
from warehouse.files.storage import Storage

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
        write_own_file,
        *(warehouse, sql),
        values=values,
        form=form,
        formulas=formulas,
        limits=limits,
        program=program,
    )
    if not isinstance(target, Path):
        return copied(write, target, form)
    if names_a_stream(target):
        # Not by a rename: other writers to the same stream would lose it. Appended, since a file
        # that a shell redirected to may have content already.
        with target.open("ab") as stream:
            return copied(write, stream, form)
    file = target.resolve()
    if not file.parent.is_dir():
        raise NoFolder(
            f"{target} can't be written: there is no folder {file.parent}. Nothing was written; "
            "create the folder, or name a file in an existing one."
        )
    with Storage(file.parent).writing(file.name) as staged:
        return write(staged)
