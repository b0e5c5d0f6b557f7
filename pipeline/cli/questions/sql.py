"""`almanac sql`, one query of the warehouse, and `almanac audit`, the look-ahead audit."""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from almanac.command_line import argument_text, parameter_of, standard_input
from almanac.errors import InvalidArgument, UnknownName
from almanac.forms import FileForm
from almanac.reading.query_limits import QueryHooks, QueryLimits, bound_memory, end_process
from pipeline.cli.options import JsonOption, local_file, signals_held
from pipeline.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    fail,
    people,
    show_rows,
)
from pipeline.home_location import locate_existing_home
from pipeline.settings import Settings, read_settings
from warehouse import queries
from warehouse.files.file_modes import usual_modes


class Form(StrEnum):
    """The output format of the rows."""

    TABLE = "table"
    VERTICAL = "vertical"
    TSV = "tsv"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_FILES: dict[Form, FileForm] = {
    Form.TSV: "tsv",
    Form.CSV: "csv",
    Form.JSON: "json",
    Form.PARQUET: "parquet",
}
_VERTICAL_END: Final = re.compile(r"\s*\\G\s*;?\s*\Z")
_OPTION: Final = re.compile(r"--[^\s=]*")


class SqlCommand(TyperCommand):
    """Takes a query that begins with a comment for a query, though options begin like that too."""

    # The class of a context has no public name in Typer.
    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        return super().parse_args(ctx, [f" {word}" if _is_comment(word) else word for word in args])


def _is_comment(word: str) -> bool:
    """Return whether white space follows the name, which no option has."""
    name = _OPTION.match(word)
    return name is not None and word[name.end() : name.end() + 1].isspace()


sql_app = typer.Typer(add_completion=False)


@sql_app.command(cls=SqlCommand)
def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            help="One statement that only reads; - reads it from stdin. At the end, \\G shows each "
            "row vertically.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Read the statement from this file.", callback=local_file
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="The text of a parameter $NAME, as NAME=TEXT; repeatable."),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            "-F",
            help="By default what --output ends with; on a terminal a table, or vertical if a row "
            "does not fit; else tsv.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file (.csv, .tsv, .json, .parquet); replace it.",
            callback=local_file,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="The most rows to show as a table or vertically.")
    ] = 40,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write CSV unchanged, without ' before text that a spreadsheet would run."
        ),
    ] = False,
) -> None:
    """Query the warehouse. Instants are UTC; `events_as_of(ts)` shows what was known at `ts`."""
    text, is_vertical = _statement(query, file)
    chosen = _form(form, output, is_vertical=is_vertical)
    values = dict(map(_value, param or ()))
    warehouse = locate_existing_home().warehouse
    limits = _limits(read_settings())
    bound_memory(limits)
    program = QueryHooks(hold_signals=signals_held, on_stuck=_end_stuck)
    if chosen not in _FILES:
        with queries.connected(warehouse, limits=limits) as connection:
            answer = queries.run_sql(
                *(connection, text),
                values=values,
                rows_max=limit,
                limits=limits,
                program=program,
            )
        show_rows(answer.columns, answer.rows, vertical=_vertical(chosen, form))
        _show_count(answer.count, limit)
        return
    target = sys.stdout.buffer if output is None or _is_stdout(output) else output
    try:
        with usual_modes():
            rows = queries.write_answer(
                *(warehouse, text, target, _FILES[chosen]),
                values=values,
                formulas=raw,
                limits=limits,
                program=program,
            )
    except queries.NoFolder as error:
        fail(str(error), code=EXIT_USAGE)
    if isinstance(target, Path):
        people.print(f"{rows:,} row{'' if rows == 1 else 's'} in {output}", soft_wrap=True)


def _statement(query: str | None, file: Path | None) -> tuple[str, bool]:
    r"""Return the text of the statement without a `\G` at its end, and whether it has one."""
    if (query is None) == (file is None):
        fail("expected one statement: QUERY, or -f FILE, or - for stdin", code=EXIT_USAGE)
    text = argument_text(query or "", "the statement")
    if file is not None:
        text = _text_of(file)
    elif query == "-":
        text = standard_input()
    statement = _VERTICAL_END.sub("", text)
    return statement, statement != text


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8 text. No query was run.", code=EXIT_USAGE)
    except OSError as error:
        hint = "; the format is --format or -F" if str(file) in list(Form) else ""
        fail(f"-f {file}: {error.strerror}{hint}. No query was run.", code=EXIT_USAGE)


def _form(given: Form | None, output: Path | None, *, is_vertical: bool) -> Form:
    """Return the form of the answer: as given, by the end of the file's name, or by stdout."""
    if is_vertical and (output is not None or given not in (None, Form.VERTICAL)):
        fail("\\G shows rows vertically: leave out --format and --output", code=EXIT_USAGE)
    if is_vertical:
        return Form.VERTICAL
    if output is None:
        if given is Form.PARQUET:
            fail("parquet needs a file: name it with --output", code=EXIT_USAGE)
        # Not what rich says: a variable that forces colours does not make a pipe a terminal.
        return given or (Form.TABLE if sys.stdout.isatty() else Form.TSV)
    names = {f".{form}": form for form in _FILES}
    named = names.get(output.suffix.lower())
    if given is not None and given not in _FILES:
        fail(
            f"--format {given} can't be written to a file: choose csv, tsv, json or parquet",
            code=EXIT_USAGE,
        )
    if given is not None and named is not None and given is not named:
        fail(
            f"--format {given} contradicts the name {output}. Nothing was written.",
            code=EXIT_USAGE,
        )
    found = given or named
    if found is None:
        fail(
            f"the name {output} tells no format: end it with {', '.join(names)}, or choose "
            "--format. Nothing was written.",
            code=EXIT_USAGE,
        )
    return found


def _vertical(chosen: Form, given: Form | None) -> bool | None:
    """Return whether rows are shown vertically; None if that depends on their width."""
    return None if given is None and chosen is Form.TABLE else chosen is Form.VERTICAL


def _value(given: str) -> tuple[str, str]:
    try:
        return parameter_of(given)
    except InvalidArgument as error:
        fail(str(error), code=EXIT_USAGE)


def _limits(settings: Settings) -> QueryLimits:
    return QueryLimits(
        memory_bytes=settings.sql_memory,
        threads=settings.sql_threads,
        timeout_s=settings.sql_timeout_s,
        memory_name="ALMANAC_SQL_MEMORY",
        timeout_name="ALMANAC_SQL_TIMEOUT_S",
    )


def _end_stuck(why: str | None) -> None:
    """Exit for a query that does not end: some functions never check for an interrupt."""
    message = INTERRUPTED if why is None else f"the query was stopped: {why}"
    end_process(f"almanac: {message}\n", EXIT_INTERRUPTED if why is None else EXIT_ERROR)


def _is_stdout(output: Path) -> bool:
    """Return whether a path is the file of standard output; then nothing else is printed there."""
    try:
        return os.path.samestat(output.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False  # The path does not exist, or standard output is no file.


def _show_count(count: int, limit: int) -> None:
    shown = f", {limit} shown (--limit)" if count > limit else ""
    people.print(f"{count:,} row{'' if count == 1 else 's'}{shown}")


class AuditBasis(StrEnum):
    """What counts as known: what was pulled, or also what the service claims."""

    OBSERVED = "observed"
    CLAIMED = "claimed"


def audit(
    signals: Annotated[
        Path,
        typer.Argument(help="A Parquet or CSV file, a folder or a pattern.", callback=local_file),
    ],
    decided_at: Annotated[
        str | None,
        typer.Option(
            help="The column of the decision; by default decided_at or ts.", metavar="COLUMN"
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="A column with another name, such as score=impact; COLUMN=- leaves it out.",
            metavar="COLUMN=FIELD",
        ),
    ] = None,
    basis: Annotated[
        AuditBasis, typer.Option(help="What was pulled, or also what the service claims.")
    ] = AuditBasis.OBSERVED,
    tz: Annotated[str, typer.Option(help="The zone of instants that name none.")] = "UTC",
    html: Annotated[
        Path | None, typer.Option(help="Also write a page to this file.", callback=local_file)
    ] = None,
    as_json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if the audit is not clean.")
    ] = False,
    max_unjudged: Annotated[
        str | None,
        typer.Option(
            help="Exit with 1 if more rows can't be judged: a number, or a share such as 5%.",
            metavar="ROWS|SHARE",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if one of these was not judged, such as date,impact.",
            metavar="FIELDS",
        ),
    ] = None,
    universe: Annotated[
        list[str] | None,
        typer.Option(
            help="A filter of the rule that selected the rows, such as within=7d or min_impact=7.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="The most findings to print: by default 10, and 1000 as JSON."),
    ] = None,
) -> None:
    """Show every row of a back-test that used something that nobody knew yet.

    A row has event_id (or coin and date), decided_at, and the values used, in columns named as in
    events: date, impact, status and others.
    """
    # Imported here: a query does not need it.
    from almanac.audit.audit import AuditOptions, run_audit

    options = AuditOptions(
        signals=signals,
        decided_at=decided_at,
        fields=field or (),
        basis=basis.value,
        tz=tz,
        html=html,
        as_json=as_json,
        is_strict=strict,
        max_unjudged=max_unjudged,
        require=require or (),
        universe=universe or (),
        limit=limit,
    )
    try:
        with usual_modes():
            code = run_audit(locate_existing_home().warehouse, options, sys.stdout.write)
    except (InvalidArgument, UnknownName) as error:
        fail(str(error), code=EXIT_USAGE)
    raise typer.Exit(code)
