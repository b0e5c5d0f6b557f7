"""The rows of one reading statement as bytes: CSV, TSV, JSON or Parquet."""

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import duckdb

from almanac.core.connections import close_within, open_memory
from almanac.core.errors import InvalidArgument
from almanac.core.files import own_folder, replace_file
from almanac.core.statements import NO_VALUES, Statements
from almanac.core.text import escape_characters, escape_json
from almanac.reading.attached_file import explain_query_errors, open_published
from almanac.reading.query_check import lists_names, reading_relation
from almanac.reading.query_limits import NO_HOOKS, USUAL_LIMITS, QueryHooks, QueryLimits, QueryWatch

if TYPE_CHECKING:
    import pyarrow as pa

FileFormat = Literal["csv", "tsv", "json", "parquet"]
_SQL = Statements("almanac.reading")


def write_answer(
    warehouse: Path,
    sql: str,
    target: Path | BinaryIO,
    form: FileFormat,
    *,
    values: Mapping[str, Any] = NO_VALUES,
    formulas: bool = True,
    limits: QueryLimits = USUAL_LIMITS,
    program: QueryHooks = NO_HOOKS,
) -> int:
    """Write the rows of one reading statement to a file or an open stream; return how many.

    A file appears complete or not at all; a link is kept, and its target is replaced. A stream, a
    device or a pipe gets the bytes after the statement has ended. The statement runs on its own
    connection, which can write only this file. JSON is strict: NaN and infinities are null,
    timestamps are ISO 8601. CSV and TSV have a header. Without `formulas`, text of a CSV that a
    spreadsheet would run gets a mark in front.

    Raises:
        WarehouseError: the warehouse can't be opened.
        InvalidArgument: there is no folder for the file, or it is a part of a home.
        QueryRefused: the statement would write, fails, takes too long, or the disk has no room.
        OSError: the file can't be written, or nobody reads the stream any more.
    """

    def write(file: Path) -> int:
        """Write to a file of our own, which an error may leave incomplete."""
        connection = open_published(warehouse, [file], limits)
        try:
            with explain_query_errors(QueryWatch(connection, limits, program, answer=file)):
                relation = reading_relation(connection, sql, values)
                answer = relation
                if form == "json":
                    answer = format_timestamps(relation)
                elif form == "tsv":
                    answer = escape_fields(relation)
                elif form == "csv" and not formulas:
                    answer = escape_formulas(relation)
                # A list of tables is made first: it would have the name that is registered here.
                fetched = answer.to_arrow_table() if lists_names(sql) else answer
                connection.register("answer", fetched)
                rows = _copy_rows(connection, _SQL[f"copy_{form}"], {"file": str(file)})
                connection.unregister("answer")
                types = " ".join(map(str, relation.types))
        finally:
            close_within(connection, limits.grace_s)
        if form == "json":
            rewrite_json(file, bare_numbers="DOUBLE" in types or "FLOAT" in types)
        if form == "tsv":
            escape_control_characters(file)
        return rows

    if not isinstance(target, Path):
        return _copy_answer(write, target, form)
    if names_a_stream(target):
        # Not by a rename: other writers to the same stream would lose it. Appended, since a file
        # that a shell redirected to may have content already.
        with target.open("ab") as stream:
            return _copy_answer(write, stream, form)
    refuse_part_of_home(target, warehouse)
    with replace_file(resolve_target(target), is_durable=False) as staged:
        return write(staged)


_STAMP: Final = "home.json"
_PARTS_OF_HOME: Final = frozenset(
    {_STAMP, "landing", "inbox", "checkpoints", "parquet", "state", "dagster"}
)


def write_csv(table: "pa.Table", target: Path) -> None:
    """Write a table as CSV with a header; lists are as DuckDB shows them."""
    with replace_file(target) as staged, closing(open_memory()) as connection:
        connection.register("answer", table)
        connection.execute(_SQL["copy_csv"], {"file": str(staged)})


def refuse_part_of_home(target: Path, warehouse: Path) -> None:
    """Refuse to write to the published file or into a home, also through a link or `..`."""
    file, published = target.resolve(), warehouse.resolve()
    is_part = file == published or (file.exists() and file.samefile(published))
    for folder in file.parents:
        if (folder / _STAMP).exists():
            name = file.relative_to(folder).parts[0].lower()
            is_part |= name in _PARTS_OF_HOME or published.name in name
    if is_part:
        raise InvalidArgument(
            f"{target} is a part of a home, which Almanac alone writes. Nothing was written; "
            "choose a file outside of the home."
        )


def resolve_target(target: Path) -> Path:
    """Return the path of a file to write, without links."""
    file = target.resolve()
    if not file.parent.is_dir():
        raise InvalidArgument(
            f"{target} can't be written: there is no folder {file.parent}. Nothing was written; "
            "create the folder, or name a file in an existing one."
        )
    return file


def _copy_answer(write: Callable[[Path], int], stream: BinaryIO, form: FileFormat) -> int:
    """Let `write` make a file of our own, copy it to a stream, and return what `write` did.

    On a terminal, the characters of CSV that would act on it are escapes, as in all other forms.
    """
    with TemporaryDirectory(prefix="answer-", dir=own_folder()) as folder:
        answer = Path(folder) / form
        rows = write(answer)
        if form == "csv" and stream.isatty():
            escape_control_characters(answer)
        with answer.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()
        return rows


def _copy_rows(connection: duckdb.DuckDBPyConnection, copy: str, file: dict[str, str]) -> int:
    """Write the answer; an error of the user's SQL does not show ours around it."""
    try:
        ((rows,),) = connection.execute(copy, file).fetchall()
    except duckdb.Error as error:
        message, shows_line, _ = str(error).partition("\n\nLINE ")
        if not shows_line:
            raise
        raise type(error)(message) from error
    return int(rows)


_OPEN: Final = ("/dev/fd/", "/dev/std", "/proc/")
"""Paths that stand for a process's open files."""
_LINKS_MAX: Final = 40


def names_a_stream(target: Path) -> bool:
    """Whether a path is a device or a pipe, or names an open file of a process."""
    step = target.absolute()
    for _ in range(_LINKS_MAX):
        if str(step).startswith(_OPEN):
            return True
        if not step.is_symlink():
            break
        step = step.parent / step.readlink()
    return step.exists() and not step.is_file()


_PRINTED: Final = re.compile(rb"[ -~\t\n]*")
_SUSPECT: Final = re.compile(rb"NaN|Infinity", re.IGNORECASE)
_TEXT_OR_BARE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)', re.IGNORECASE)


def rewrite_json(path: Path, *, bare_numbers: bool) -> None:
    """Rewrite a JSON file with the same values so that it is safe to print on a terminal.

    NaN and infinities become null, if there may be any. DuckDB writes each row on a line.
    """

    def changed(line: bytes) -> bytes:
        if bare_numbers and _SUSPECT.search(line):
            line = _TEXT_OR_BARE.sub(lambda found: found[1] or b"null", line)
        return line if _PRINTED.fullmatch(line) else escape_json(line.decode()).encode()

    _rewrite(path, changed)


def escape_control_characters(path: Path) -> None:
    """Rewrite a TSV or CSV file with an escape for each character that would act on a terminal."""
    _rewrite(path, lambda line: escape_characters(line.decode()).encode())


def _rewrite(path: Path, changed: Callable[[bytes], bytes]) -> None:
    with (
        replace_file(path, is_durable=False) as staged,
        path.open("rb") as given,
        staged.open("wb") as lines,
    ):
        for line in given:
            lines.write(changed(line))


_RUN: Final = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""First characters of a cell that spreadsheets read as a formula, or as a blank before one."""
_MARK: Final = "'"
"""Spreadsheets read a cell that begins with this mark as text; most don't show it."""
_TEXTS: Final = ("VARCHAR", "ENUM", "BLOB", "UNION", "VARIANT")
_TEXT: Final = "VARCHAR"


def mark_formula(text: str) -> str:
    """Return a text of a CSV with a mark in front if a spreadsheet would run it."""
    return _MARK + text if text.startswith(tuple(_RUN)) else text


def escape_formulas(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the same rows, with a mark before each text and column name that would be a formula.

    Numbers, dates and lists stay as they are.
    """
    columns = [
        (_cell(number) if str(kind).startswith(_TEXTS) else _column(number)).alias(
            mark_formula(name)
        )
        for number, (name, kind) in enumerate(zip(rows.columns, rows.types, strict=True), 1)
    ]
    return rows.select(*columns)


def _column(number: int) -> duckdb.Expression:
    # By position: if two columns had the same name, the first would be used for both.
    return duckdb.SQLExpression(f"#{number}")


def _cell(number: int) -> duckdb.Expression:
    text = _column(number).cast(_TEXT)
    first = duckdb.FunctionExpression("left", text, duckdb.ConstantExpression(1))
    is_run = first.isin(*map(duckdb.ConstantExpression, _RUN))
    marked = duckdb.FunctionExpression("concat", duckdb.ConstantExpression(_MARK), text)
    return duckdb.CaseExpression(is_run, marked).otherwise(text)


_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def escape_fields(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    r"""Return the same rows as text, with backslashes, tabs and line ends written as `\\`, `\t`,
    `\n`, `\r`.

    NULL stays NULL, which is written as `\N`: a text cannot look like it. Characters that act on a
    terminal get their escapes in the file (`escape_control_characters`).
    """
    columns = []
    for number, name in enumerate(rows.columns, 1):
        text, shown = _column(number).cast(_TEXT), name
        for character, escape in _ESCAPES:
            text = _replaced(text, character, escape)
            shown = shown.replace(character, escape)
        columns.append(text.alias(shown))
    return rows.select(*columns)


_INSTANT: Final = "timestamp with time zone"


def format_timestamps(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the same rows with timestamps as ISO 8601 in UTC, also those inside nested values.

    A timestamp without a zone gets no `Z`. The zone of the connection is UTC.
    """
    columns = []
    for number, (name, kind) in enumerate(zip(rows.columns, rows.types, strict=True), 1):
        column = _column(number)
        columns.append((_iso(column, kind) if _has_instant(kind) else column).alias(name))
    return rows.select(*columns)


def _has_instant(kind: Any) -> bool:
    if kind.id.startswith("timestamp"):
        return True
    return kind.id in _INNER and any(_has_instant(inner) for _, inner in _inner(kind))


_INNER: Final = ("list", "array", "struct", "map")


def _inner(kind: Any) -> list[tuple[str, Any]]:
    """Return the types inside a nested type, with their names; an array also has its size there."""
    return [(name, inner) for name, inner in kind.children if name != "size"]


def _iso(value: duckdb.Expression, kind: Any, depth: int = 0) -> duckdb.Expression:
    """Return an expression for a value that has timestamps, as texts."""
    if kind.id.startswith("timestamp"):
        text = _replaced(value.cast(_TEXT), " ", "T")
        return _replaced(text, "+00", "Z") if kind.id == _INSTANT else text
    inner = dict(_inner(kind))
    if kind.id == "struct":
        fields = [
            (_iso(part, kind, depth) if _has_instant(kind) else part).alias(name)
            for name, kind in inner.items()
            for part in (_call("struct_extract", value, _text(name)),)
        ]
        return duckdb.CaseExpression(value.isnotnull(), _call("struct_pack", *fields))
    if kind.id == "map":
        parts = (
            (_call("map_keys", value), inner["key"]),
            (_call("map_values", value), inner["value"]),
        )
        keys, values = (_iso_list(part, of, depth) for part, of in parts)
        return duckdb.CaseExpression(value.isnotnull(), _call("map", keys, values))
    (child,) = inner.values()
    return _iso_list(value.cast(duckdb.list_type(child)), child, depth)


def _iso_list(value: duckdb.Expression, child: Any, depth: int) -> duckdb.Expression:
    if not _has_instant(child):
        return value
    name = f"item_{depth}"
    item = _iso(duckdb.ColumnExpression(name), child, depth + 1)
    return _call("list_transform", value, duckdb.LambdaExpression(name, item))


def _replaced(text: duckdb.Expression, old: str, new: str) -> duckdb.Expression:
    return _call("replace", text, _text(old), _text(new))


def _call(name: str, *given: duckdb.Expression) -> duckdb.Expression:
    return duckdb.FunctionExpression(name, *given)


def _text(text: str) -> duckdb.Expression:
    return duckdb.ConstantExpression(text)
