"""`almanac sql`: one query over the warehouse, as a table or in a form for programs."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import EXIT_USAGE, Table, fail, people
from pipeline.homes import home_there
from warehouse import queries
from warehouse.file_modes import usual_modes
from warehouse.plain_text import plain_line

_WIDEST = 60


class Form(StrEnum):
    """How the rows are given."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_FORMS: dict[Form, queries.FileForm] = {
    Form.CSV: "csv",
    Form.JSON: "json",
    Form.PARQUET: "parquet",
}


def sql(
    query: Annotated[str, typer.Argument(help="One statement that reads; - takes it from stdin.")],
    form: Annotated[Form, typer.Option("--format", "-f", help="JSON is an array.")] = Form.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file, replaced whole.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of a table that are shown.")] = 40,
) -> None:
    """Ask the warehouse. Instants are UTC; `events_as_of(ts)` is what was known at an instant."""
    if form is Form.PARQUET and output is None:
        fail("parquet goes to a file: name it with --output", code=EXIT_USAGE)
    if form is Form.TABLE and output is not None:
        fail("a table goes to the terminal: choose --format csv, json or parquet", code=EXIT_USAGE)
    text = sys.stdin.read() if query == "-" else query
    warehouse = home_there().warehouse
    with queries.connected(warehouse) as connection:
        if form is Form.TABLE:
            _show(queries.run_sql(connection, text), limit)
            return
        if output is None or _is_stdout(output):
            queries.stream_answer(connection, text, sys.stdout.buffer, _FORMS[form])
            return
        with usual_modes():
            rows = queries.write_answer(connection, text, output, _FORMS[form])
    people.print(f"{rows:,} rows in {output}", soft_wrap=True)


def _is_stdout(output: Path) -> bool:
    """Whether a path is what standard output goes to; then nothing else is to be said there."""
    try:
        return os.path.samestat(output.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False  # Not there yet, or standard output is no file at all.


def _show(answer: queries.Answer, limit: int) -> None:
    table = Table(*answer.columns)
    for row in answer.rows[:limit]:
        table.add_row(*map(_cell, row))
    people.print(table)
    count = len(answer.rows)
    shown = f", {limit} shown (--limit)" if count > limit else ""
    people.print(f"{count:,} row{'' if count == 1 else 's'}{shown}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = plain_line(text.removesuffix("+00:00"))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
