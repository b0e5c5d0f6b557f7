"""The values of an answer in the forms of its files: cells of CSV and TSV, instants of JSON.

Belongs here: what changes a value, or its text, for one form, and what a named target is. Does not:
running the query, writing the file (almanac.reading.answers).
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import duckdb

from almanac.forms.plain_text import escaped, escaped_in_json

FileForm = Literal["csv", "tsv", "json", "parquet"]
_OPEN: Final = ("/dev/fd/", "/dev/std", "/proc/")
"""Paths that stand for a process's open files."""
_LINKS_MAX: Final = 40


def in_form(
    relation: duckdb.DuckDBPyRelation, form: FileForm, *, formulas: bool
) -> duckdb.DuckDBPyRelation:
    """Return the rows of an answer as they are written in a form."""
    if form == "json":
        return with_iso_instants(relation)
    if form == "tsv":
        return with_escaped_fields(relation)
    return without_formulas(relation) if form == "csv" and not formulas else relation


def finish_file(path: Path, form: FileForm, types: Sequence[str]) -> None:
    """Change in a written file what no statement can."""
    if form == "json":
        strict_and_plain(path, bare_numbers=any(map(_may_be_no_number, types)))
    if form == "tsv":
        without_acting_characters(path)


def _may_be_no_number(type_name: str) -> bool:
    return "DOUBLE" in type_name or "FLOAT" in type_name


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


def strict_and_plain(path: Path, *, bare_numbers: bool) -> None:
    """Rewrite a JSON file of the same values, safe to print on a terminal.

    NaN and infinities become null, if there may be any. DuckDB writes each row on a line.
    """

    def changed(line: bytes) -> bytes:
        if bare_numbers and _SUSPECT.search(line):
            line = _strict(line)
        return line if _PRINTED.fullmatch(line) else escaped_in_json(line.decode()).encode()

    _rewrite(path, changed)


def without_acting_characters(path: Path) -> None:
    """Rewrite a TSV or CSV file with an escape for each character that would act on a terminal."""
    _rewrite(path, lambda line: line if _PRINTED.fullmatch(line) else _escaped(line))


def _rewrite(path: Path, changed: Callable[[bytes], bytes]) -> None:
    rewritten = path.with_name(path.name + ".rewritten")
    try:
        with path.open("rb") as given, rewritten.open("wb") as lines:
            for line in given:
                lines.write(changed(line))
        rewritten.replace(path)
    finally:
        rewritten.unlink(missing_ok=True)


def _strict(line: bytes) -> bytes:
    return _TEXT_OR_BARE.sub(lambda found: found[1] or b"null", line)


def _escaped(line: bytes) -> bytes:
    return escaped(line.decode()).encode()


_RUN: Final = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""First characters of a cell that spreadsheets read as a formula, or as a blank before one."""
_MARK: Final = "'"
"""Spreadsheets read a cell that begins with this mark as text; most don't show it."""
_TEXTS: Final = ("VARCHAR", "ENUM", "BLOB", "UNION", "VARIANT")
_TEXT: Final = duckdb.type("VARCHAR")


def without_formulas(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the same rows, with a mark before each text and column name that would be a formula.

    Numbers, dates and lists stay as they are.
    """
    columns = [
        (_cell(number) if str(kind).startswith(_TEXTS) else _column(number)).alias(_name(name))
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


def _name(name: str) -> str:
    return _MARK + name if name[:1] in tuple(_RUN) else name


_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def with_escaped_fields(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    r"""Return the same rows as text, with `\\`, `\t`, `\n`, `\r` for what would end a field or row.

    NULL stays NULL, which is written as `\N`: a text cannot look like it. Characters that act on a
    terminal get their escapes in the file (`without_acting_characters`).
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


def with_iso_instants(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the same rows with instants as ISO 8601 in UTC, also those inside nested values.

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
    """Return an expression for a value that has instants, as texts."""
    if kind.id.startswith("timestamp"):
        text = _replaced(value.cast(_TEXT), " ", "T")
        return _replaced(text, "+00", "Z") if kind.id == _INSTANT else text
    inner = dict(_inner(kind))
    if kind.id == "struct":
        fields = [
            _iso_or_same(_call("struct_extract", value, _text(name)), field, depth).alias(name)
            for name, field in inner.items()
        ]
        return _unless_null(value, _call("struct_pack", *fields))
    if kind.id == "map":
        parts = (
            (_call("map_keys", value), inner["key"]),
            (_call("map_values", value), inner["value"]),
        )
        keys, values = (_iso_list(part, of, depth) for part, of in parts)
        return _unless_null(value, _call("map", keys, values))
    (child,) = inner.values()
    return _iso_list(value.cast(duckdb.list_type(child)), child, depth)


def _iso_list(value: duckdb.Expression, child: Any, depth: int) -> duckdb.Expression:
    if not _has_instant(child):
        return value
    name = f"item_{depth}"
    item = _iso(duckdb.ColumnExpression(name), child, depth + 1)
    return _call("list_transform", value, duckdb.LambdaExpression(name, item))


def _iso_or_same(value: duckdb.Expression, kind: Any, depth: int) -> duckdb.Expression:
    return _iso(value, kind, depth) if _has_instant(kind) else value


def _unless_null(value: duckdb.Expression, built: duckdb.Expression) -> duckdb.Expression:
    return duckdb.CaseExpression(value.isnotnull(), built)


def _replaced(text: duckdb.Expression, old: str, new: str) -> duckdb.Expression:
    return _call("replace", text, _text(old), _text(new))


def _call(name: str, *given: duckdb.Expression) -> duckdb.Expression:
    return duckdb.FunctionExpression(name, *given)


def _text(text: str) -> duckdb.Expression:
    return duckdb.ConstantExpression(text)
