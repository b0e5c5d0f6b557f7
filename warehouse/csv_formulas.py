"""CSV for people: text that a spreadsheet would run as a formula is shown there as text.

Belongs here: which cells those are, and what is done to them. Does not: writing the file.
"""

from typing import Final

import duckdb

_RUN: Final = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""How a cell begins that spreadsheets take for a formula, or find one in after the first blank."""
_MARK: Final = "'"
"""Before a text spreadsheets read it as text, and most don't show it."""
_TEXTS: Final = ("VARCHAR", "ENUM", "BLOB", "UNION", "VARIANT")
_TEXT: Final = duckdb.type("VARCHAR")


def without_formulas(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the same rows, with a mark before each text and column name that would be run.

    Numbers, dates and lists stay as they are.
    """
    columns = [
        (_cell(number) if str(kind).startswith(_TEXTS) else _column(number)).alias(_name(name))
        for number, (name, kind) in enumerate(zip(rows.columns, rows.types, strict=True), 1)
    ]
    return rows.select(*columns)


def _column(number: int) -> duckdb.Expression:
    # By its place: two columns may have one name, and the first would stand for both.
    return duckdb.SQLExpression(f"#{number}")


def _cell(number: int) -> duckdb.Expression:
    text = _column(number).cast(_TEXT)
    first = duckdb.FunctionExpression("left", text, duckdb.ConstantExpression(1))
    is_run = first.isin(*map(duckdb.ConstantExpression, _RUN))
    marked = duckdb.FunctionExpression("concat", duckdb.ConstantExpression(_MARK), text)
    return duckdb.CaseExpression(is_run, marked).otherwise(text)


def _name(name: str) -> str:
    return _MARK + name if name[:1] in tuple(_RUN) else name
