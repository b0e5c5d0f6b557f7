"""The values of an answer in the forms of its files: cells of CSV, numbers of JSON.

Belongs here: what changes a value, or its text, for one form. Does not: running the query, writing
the file (queries).
"""

import re
from pathlib import Path
from typing import Final

import duckdb

_SUSPECT: Final = re.compile(rb"NaN|Infinity", re.IGNORECASE)
_TEXT_OR_BARE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)', re.IGNORECASE)


def without_bare_numbers(path: Path) -> None:
    """Rewrite a JSON file with null for NaN and infinities. DuckDB writes each row on a line."""
    rewritten = path.with_name(path.name + ".strict")
    try:
        with path.open("rb") as given, rewritten.open("wb") as strict:
            for line in given:
                strict.write(_strict(line) if _SUSPECT.search(line) else line)
        rewritten.replace(path)
    finally:
        rewritten.unlink(missing_ok=True)


def _strict(line: bytes) -> bytes:
    return _TEXT_OR_BARE.sub(lambda found: found[1] or b"null", line)


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
