"""The commands that read a published file: `sql`, `audit` and `changes`."""

import os
import re
import sys
import threading
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from almanac.command_line import extension, signals_held
from almanac.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    HomeOption,
    JsonOption,
    fail,
    local_file,
    people,
    print_text,
    show_rows,
    show_steps,
)
from almanac.errors import InvalidArgument
from almanac.reader import Reader, find_file
from almanac.reading.attached_file import connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits, bound_memory, end_process
from almanac.reading.row_files import FileForm, write_answer
from almanac.safe_text import fitted
from almanac.timestamps import refuse_misread


def locate_warehouse(home: Path | None) -> Path:
    """Return the published file to read: of `--home`, or the usual one."""
    return extension().find_warehouse() if home is None else find_file(home)


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
_UNDECODED: Final = re.compile("[\ud800-\udfff]")
"""The characters that Python uses for undecodable bytes of an argument."""
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?B)", re.IGNORECASE)
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY_LEAST: Final = 100_000_000


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].upper()])
    if size < _MEMORY_LEAST:
        raise typer.BadParameter(f"{text!r}: expected a size of 100MB or more, as 500MB")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise typer.BadParameter(f"{text!r}: expected seconds, such as 60")
    return seconds


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
            help="One statement that only reads; - reads it from standard input. At the end, \\G "
            "shows each row vertically.",
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
        typer.Option(help="The value of the parameter $NAME; repeatable.", metavar="NAME=TEXT"),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            "-F",
            help="The output format. Default: the end of the --output name; on a terminal a table, "
            "or vertical if a row does not fit; else tsv.",
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
        int, typer.Option(min=1, help="Show at most this many rows as a table or vertically.")
    ] = 40,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write CSV text unchanged. By default, formulas get a ' in front."
        ),
    ] = False,
    home: HomeOption = None,
    memory: Annotated[
        int | None,
        typer.Option(
            parser=_bytes,
            metavar="SIZE",
            help="Most memory for the query, such as 500MB; it may use twice as much disk space.",
            show_default="2GB",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=_seconds,
            metavar="SECONDS",
            help="Stop the query after this many seconds.",
            show_default="ALMANAC_SQL_TIMEOUT_S of the application, or 300",
        ),
    ] = None,
) -> None:
    """Query the warehouse. Times are UTC; `events_as_of(ts)` shows what was known at `ts`."""
    text, is_vertical = _read_statement(query, file)
    chosen = _choose_form(form, output, is_vertical=is_vertical)
    values = dict(map(parse_parameter, param or ()))
    warehouse = locate_warehouse(home)
    limits = _choose_limits(memory, timeout)
    bound_memory(limits)
    options: dict[str, Any] = {
        "values": values,
        "limits": limits,
        "program": QueryHooks(hold_signals=signals_held, on_stuck=_end_stuck),
    }
    if chosen not in _FILES:
        with show_steps("Running the query ..."), connected(warehouse, limits=limits) as connection:
            answer = run_sql(connection, text, rows_max=limit, **options)
        is_free = form is None and chosen is Form.TABLE
        show_rows(
            answer.columns, answer.rows, vertical=None if is_free else chosen is Form.VERTICAL
        )
        shown = f", {limit} shown (--limit)" if answer.count > limit else ""
        people.print(f"{_count_rows(answer.count)}{shown}")
        return
    target = sys.stdout.buffer if output is None or _is_stdout(output) else output
    with show_steps("Running the query ..."):
        rows = write_answer(warehouse, text, target, _FILES[chosen], formulas=raw, **options)
    if isinstance(target, Path):
        people.print(f"{_count_rows(rows)} in {output}", soft_wrap=True)


def _count_rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _choose_limits(memory: int | None, timeout: float | None) -> QueryLimits:
    limits = extension().query_limits()
    if memory is not None:
        limits = replace(limits, memory_bytes=memory, memory_name="--memory")
    if timeout is not None:
        limits = replace(limits, timeout_s=timeout, timeout_name="--timeout")
    return limits


def _read_statement(query: str | None, file: Path | None) -> tuple[str, bool]:
    r"""Return the text of the statement without a `\G` at its end, and whether it has one."""
    if (query is None) == (file is None):
        fail("expected one statement: QUERY, or -f FILE, or - for standard input", code=EXIT_USAGE)
    if file is not None:
        text = _read_file(file)
    elif query == "-":
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            fail("standard input is not UTF-8 text. No query was run.", code=EXIT_USAGE)
    else:
        text = _decode(query or "", "the statement")
    statement = _VERTICAL_END.sub("", text)
    return statement, statement != text


def _read_file(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8 text. No query was run.", code=EXIT_USAGE)
    except OSError as error:
        hint = "; the format is --format or -F" if str(file) in list(Form) else ""
        fail(f"-f {file}: {error.strerror}{hint}. No query was run.", code=EXIT_USAGE)


def _decode(given: str, name: str) -> str:
    """Return an argument, which is UTF-8 whatever the locale.

    Raises:
        InvalidArgument: it is not.
    """
    if not _UNDECODED.search(given):
        return given
    try:
        return os.fsencode(given).decode()
    except UnicodeError:
        raise InvalidArgument(f"{name} is not UTF-8 text. No query was run.") from None


def parse_parameter(given: str) -> tuple[str, str]:
    """Return the name and the text of a parameter of a statement.

    Raises:
        InvalidArgument: it is not NAME=TEXT, or the text is a time whose zone is abbreviated.
    """
    name, sign, text = _decode(given, "--param").partition("=")
    if not sign or not name.isidentifier():
        raise InvalidArgument(f"--param {given}: expected NAME=TEXT, such as ts=2026-03-02")
    refuse_misread(text, f"--param {name}")
    return name, text


def _choose_form(given: Form | None, output: Path | None, *, is_vertical: bool) -> Form:
    """Return the form of the answer: as given, by the end of the file name, or by stdout."""
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


def _end_stuck(why: str | None) -> None:
    """End the process for a query that does not end: some functions ignore an interrupt."""
    message = INTERRUPTED if why is None else f"the query was stopped: {why}"
    end_process(f"almanac: {message}\n", EXIT_INTERRUPTED if why is None else EXIT_ERROR)


def _is_stdout(output: Path) -> bool:
    """Return whether a path is the file of standard output; then nothing else is printed there."""
    try:
        return os.path.samestat(output.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False  # The path does not exist, or standard output is not a file.


class AuditBasis(StrEnum):
    """The basis: pulled data, or also claims of the service."""

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
        AuditBasis, typer.Option(help="Use pulled data only, or also the service's claims.")
    ] = AuditBasis.OBSERVED,
    tz: Annotated[str, typer.Option(help="The time zone of times without one.")] = "UTC",
    html: Annotated[
        Path | None,
        typer.Option(help="Also write an HTML report to this file.", callback=local_file),
    ] = None,
    as_json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if the audit is not clean.")
    ] = False,
    max_unjudged: Annotated[
        str | None,
        typer.Option(
            help="Exit with 1 if more rows than this can't be judged: a number, or a share such "
            "as 5%.",
            metavar="ROWS|SHARE",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if one of these fields was not judged, such as date,impact.",
            metavar="FIELDS",
        ),
    ] = None,
    universe: Annotated[
        list[str] | None,
        typer.Option(
            help="A filter with which the rows were selected, such as within=7d or min_impact=7.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="Print at most this many findings: by default 10, and 1000 as JSON."
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Find back-test rows that used future information.

    A row has event_id (or coin and date), decided_at, and the values used, in columns named as in
    events: date, impact, status and others.
    """
    # Imported here: a query does not need it.
    from almanac.audit.audit import run_audit

    code = run_audit(
        locate_warehouse(home),
        signals,
        sys.stdout.write,
        decided_at=decided_at and _decode(decided_at, "--decided-at"),
        fields=[_decode(text, "--field") for text in field or ()],
        basis=basis.value,
        tz=tz,
        html=html,
        as_json=as_json,
        strict=strict,
        max_unjudged=max_unjudged,
        require=require or (),
        universe=[_decode(text, "--universe") for text in universe or ()],
        limit=limit,
    )
    raise typer.Exit(code)


class DigestFormat(StrEnum):
    """The output format of a digest."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    SLACK = "slack"


def changes(
    since: Annotated[
        str, typer.Option(help="The start of the period: a time, today or yesterday.")
    ] = "yesterday",
    until: Annotated[
        str | None, typer.Option(help="The end of the period.", show_default="now")
    ] = None,
    coins: Annotated[
        str | None, typer.Option(help="Slugs, tickers or names, separated by commas.")
    ] = None,
    kinds: Annotated[
        str | None, typer.Option(help="Kinds of change, separated by commas, such as cancelled.")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Names of categories, separated by commas.")
    ] = None,
    min_impact: Annotated[
        float | None, typer.Option(help="The lowest score to show, 0 to 10.")
    ] = None,
    form: Annotated[
        DigestFormat, typer.Option("--format", "-F", help="The output format.")
    ] = DigestFormat.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Show at most this many events per kind.", show_default="10; all of them for json"
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Show what became known in a period: cancelled, moved, rescored, new events."""
    # Imported here: a query needs none of it.
    from almanac.digest import LISTED, digest_of, in_form

    reader = Reader(locate_warehouse(home))
    try:
        digest = digest_of(
            reader,
            since=since,
            until=until,
            coins=split_names("--coins", coins),
            kinds=split_names("--kinds", kinds),
            categories=split_names("--categories", categories),
            min_impact=min_impact,
            limit=LISTED if limit is None and form is not DigestFormat.JSON else limit,
        )
    finally:
        reader.close()
    text = in_form(digest, form.value)
    print_text(fitted(text, sys.stdout.encoding) if form is DigestFormat.TABLE else text)


def split_names(option: str, given: str | None) -> list[str] | None:
    """Return the names in a comma list, None if the option is not given.

    Raises:
        InvalidArgument: it has no name, for example because a shell variable is unset.
    """
    if given is None:
        return None
    names = [name.strip() for name in _decode(given, option).split(",") if name.strip()]
    if not names:
        raise InvalidArgument(f"{option} is empty; expected {option} a,b, or no {option} for all")
    return names
