"""`almanac sql`: one query of the warehouse, printed as a table, CSV, JSON or Parquet."""

import os
import resource
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import signals_held
from pipeline.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    Table,
    fail,
    people,
    warnings,
)
from pipeline.session import home_there
from pipeline.settings import Settings, read_settings
from warehouse import queries
from warehouse.files.file_modes import usual_modes
from warehouse.files.temporary import remove_own_folders
from warehouse.plain_text import plain_line
from warehouse.query_limits import QueryHooks, QueryLimits

_WIDEST = 60
_PROGRAM_BYTES = 1_000_000_000
"""Memory of the program beside twice that of the query, since Python holds the rows again."""
_STACK_BYTES = 64_000_000
"""Of each thread; most of it is never used."""


class Form(StrEnum):
    """The output format of the rows."""

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
    query: Annotated[
        str, typer.Argument(help="One statement that only reads; - reads it from stdin.")
    ],
    form: Annotated[
        Form, typer.Option("--format", "-f", help="The output format; json is an array.")
    ] = Form.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file and replace it.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most rows of a table to show.")] = 40,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write CSV unchanged, without ' before text that a spreadsheet would run."
        ),
    ] = False,
) -> None:
    """Query the warehouse. Instants are UTC; `events_as_of(ts)` shows what was known at `ts`."""
    if form is Form.PARQUET and output is None:
        fail("parquet needs a file: name it with --output", code=EXIT_USAGE)
    if form is Form.TABLE and output is not None:
        fail(
            "a table can't be written to a file: choose --format csv, json or parquet",
            code=EXIT_USAGE,
        )
    text = sys.stdin.read() if query == "-" else query
    warehouse = home_there().warehouse
    limits = _limits(read_settings())
    _bound_memory(limits)
    program = QueryHooks(hold_signals=signals_held, on_stuck=_end_stuck)
    if form is Form.TABLE:
        with queries.connected(warehouse, limits=limits) as connection:
            answer = queries.run_sql(
                connection, text, rows_max=limit, limits=limits, program=program
            )
        _show(answer, limit)
        return
    target = sys.stdout.buffer if output is None or _is_stdout(output) else output
    try:
        with usual_modes():
            rows = queries.write_answer(
                *(warehouse, text, target, _FORMS[form]),
                formulas=raw,
                limits=limits,
                program=program,
            )
    except queries.NoFolder as error:
        fail(str(error), code=EXIT_USAGE)
    if isinstance(target, Path):
        people.print(f"{rows:,} rows in {output}", soft_wrap=True)


def _limits(settings: Settings) -> QueryLimits:
    return QueryLimits(
        memory_bytes=settings.sql_memory,
        threads=settings.sql_threads,
        timeout_s=settings.sql_timeout_s,
    )


def _bound_memory(limits: QueryLimits) -> None:
    """Limit the memory of this process: DuckDB's own limit ignores memory of its functions.

    Only Linux enforces it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    stacks = (limits.threads or os.cpu_count() or 1) * _STACK_BYTES
    bound = 2 * limits.memory_bytes + _PROGRAM_BYTES + stacks
    resource.setrlimit(resource.RLIMIT_DATA, (_lower(bound, hard), hard))


def _lower(bound: int, hard: int) -> int:
    return bound if hard == resource.RLIM_INFINITY else min(bound, hard)


def _end_stuck(why: str | None) -> None:
    """Exit for a query that does not end: some functions never check for an interrupt."""
    remove_own_folders()
    message = INTERRUPTED if why is None else f"the query was stopped: {why}"
    warnings.print(f"almanac: {message}", soft_wrap=True)
    os._exit(EXIT_INTERRUPTED if why is None else EXIT_ERROR)


def _is_stdout(output: Path) -> bool:
    """Return whether a path is the file of standard output; then nothing else is printed there."""
    try:
        return os.path.samestat(output.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False  # The path does not exist, or standard output is no file.


def _show(answer: queries.QueryAnswer, limit: int) -> None:
    table = Table(*answer.columns)
    for row in answer.rows:
        table.add_row(*map(_cell, row))
    people.print(table)
    count = answer.count
    shown = f", {limit} shown (--limit)" if count > limit else ""
    people.print(f"{count:,} row{'' if count == 1 else 's'}{shown}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = plain_line(text.removesuffix("+00:00"))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
