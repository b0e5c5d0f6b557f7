"""The commands that read a published file: `sql`, `changes` and `export`."""

import os
import re
import sys
import threading
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import typer
from typer.core import TyperCommand

from almanac.command_line import hold_signals, load_extension
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
    warnings,
)
from almanac.core.errors import InvalidArgument
from almanac.core.files import replace_file
from almanac.core.text import count_noun, fit_encoding, json_text
from almanac.core.timestamps import refuse_ambiguous_time
from almanac.digest import LISTED, compute_digest, format_digest
from almanac.events import read_min_impact
from almanac.reader import Ambiguous, Reader, find_file
from almanac.reading.attached_file import connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits, bound_memory, end_process
from almanac.reading.row_files import (
    FileFormat,
    names_a_stream,
    refuse_part_of_home,
    resolve_target,
    write_answer,
)


def locate_warehouse(home: Path | None) -> Path:
    """Return the published file to read: of `--home`, or the usual one."""
    return load_extension().find_warehouse() if home is None else find_file(home)


OutputFormat = Literal["table", "vertical", "tsv", "csv", "json", "parquet"]
_FILES: Final[dict[OutputFormat, FileFormat]] = {name: name for name in get_args(FileFormat)}
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
    """Return whether white space follows the name: then it is not an option."""
    name = _OPTION.match(word)
    return name is not None and word[name.end() : name.end() + 1].isspace()


sql_app = typer.Typer(add_completion=False)


@sql_app.command(cls=SqlCommand)
def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            help="One statement that only reads; - reads it from standard input.",
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
        OutputFormat | None,
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
    text = _read_statement(query, file)
    chosen = _choose_form(form, output)
    values = dict(map(parse_parameter, param or ()))
    warehouse = locate_warehouse(home)
    limits = _choose_limits(memory, timeout)
    bound_memory(limits)
    options: dict[str, Any] = {
        "values": values,
        "limits": limits,
        "program": QueryHooks(hold_signals=hold_signals, on_stuck=_end_stuck),
    }
    if chosen not in _FILES:
        with show_steps("Running the query"), connected(warehouse, limits=limits) as connection:
            answer = run_sql(connection, text, rows_max=limit, **options)
        is_free = form is None and chosen == "table"
        show_rows(answer.columns, answer.rows, vertical=None if is_free else chosen == "vertical")
        shown = f", {limit} shown (--limit)" if answer.count > limit else ""
        people.print(f"{count_noun(answer.count, 'row')}{shown}")
        return
    target = sys.stdout.buffer if output is None or _is_stdout(output) else output
    with show_steps("Running the query"):
        rows = write_answer(warehouse, text, target, _FILES[chosen], formulas=raw, **options)
    if isinstance(target, Path):
        people.print(f"{count_noun(rows, 'row')} in {output}", soft_wrap=True)


def _choose_limits(memory: int | None, timeout: float | None) -> QueryLimits:
    limits = load_extension().query_limits()
    if memory is not None:
        limits = replace(limits, memory_bytes=memory, memory_name="--memory")
    if timeout is not None:
        limits = replace(limits, timeout_s=timeout, timeout_name="--timeout")
    return limits


def _read_statement(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        fail("expected one statement: QUERY, or -f FILE, or - for standard input", code=EXIT_USAGE)
    if file is not None:
        return _read_file(file)
    if query != "-":
        return decode_argument(query or "", "the statement")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        fail("standard input is not UTF-8 text. No query was run.", code=EXIT_USAGE)


def _read_file(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8 text. No query was run.", code=EXIT_USAGE)
    except OSError as error:
        hint = "; the format is --format or -F" if str(file) in get_args(OutputFormat) else ""
        fail(f"-f {file}: {error.strerror}{hint}. No query was run.", code=EXIT_USAGE)


def decode_argument(given: str, name: str) -> str:
    """Return an argument decoded as UTF-8, regardless of the locale."""
    if not _UNDECODED.search(given):
        return given
    try:
        return os.fsencode(given).decode()
    except UnicodeError:
        raise InvalidArgument(f"{name} is not UTF-8 text. No query was run.") from None


def parse_parameter(given: str) -> tuple[str, str]:
    """Return the name and the text of a parameter of a statement."""
    name, sign, text = decode_argument(given, "--param").partition("=")
    if not sign or not name.isidentifier():
        raise InvalidArgument(f"--param {given}: expected NAME=TEXT, such as ts=2026-03-02")
    refuse_ambiguous_time(text, f"--param {name}")
    return name, text


def _choose_form(given: OutputFormat | None, output: Path | None) -> OutputFormat:
    """Return the output format: the given one, or chosen by the file extension or by stdout."""
    if output is None:
        if given == "parquet":
            fail("parquet needs a file: name it with --output", code=EXIT_USAGE)
        # Not what rich says: a variable that forces colours does not make a pipe a terminal.
        return given or ("table" if sys.stdout.isatty() else "tsv")
    names = {f".{form}": form for form in _FILES}
    named = names.get(output.suffix.lower())
    if given is not None and given not in _FILES:
        fail(
            f"--format {given} can't be written to a file: choose csv, tsv, json or parquet",
            code=EXIT_USAGE,
        )
    if given is not None and named is not None and given is not named:
        fail(
            f"--format {given} contradicts the name {output}. Nothing was written.", code=EXIT_USAGE
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


CoinsOption = Annotated[
    str | None, typer.Option(help="Slugs, tickers, names or pairs of coins, separated by commas.")
]
AmbiguousOption = Annotated[
    Ambiguous,
    typer.Option(
        help="A text of several coins is an error, or the coin with the best rank at the time."
    ),
]
CategoriesOption = Annotated[
    str | None, typer.Option(help="Names of categories, separated by commas.")
]
MinImpactOption = Annotated[
    str | None,
    typer.Option(metavar="SCORE", help="The lowest impact: 0 to 10, or a band such as High."),
]


def changes(
    since: Annotated[
        str | None,
        typer.Option(
            help="The start of the period: a time, today or yesterday; with --follow also the "
            "cursor of a line.",
            show_default="yesterday; with --follow now",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="The end of the period.", show_default="now")
    ] = None,
    coins: CoinsOption = None,
    ambiguous: AmbiguousOption = "raise",
    kinds: Annotated[
        str | None, typer.Option(help="Kinds of change, separated by commas, such as cancelled.")
    ] = None,
    categories: CategoriesOption = None,
    min_impact: MinImpactOption = None,
    form: Annotated[
        Literal["table", "markdown", "json"] | None,
        typer.Option("--format", "-F", help="The output format.", show_default="table"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Show at most this many events per kind.", show_default="10; all of them for json"
        ),
    ] = None,
    home: HomeOption = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Print each change as a JSON line as it becomes known."),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --follow: exit after the changes known now.")
    ] = False,
) -> None:
    """Show what became known in a period: cancelled, moved, rescored, new events.

    A line of --follow has the fields of `/v2/events/changes`. Its `cursor` is for `--since`: the
    next call continues after that line, without a gap or a repetition. --follow needs the
    application.
    """
    for name, value in {"--until": until, "--format": form, "--limit": limit}.items():
        if follow and value:
            fail(f"{name} can't be used with --follow", code=EXIT_USAGE)
    if once and not follow:
        fail("--once needs --follow, which is missing", code=EXIT_USAGE)
    filters: dict[str, Any] = {
        "coins": split_names("--coins", coins),
        "kinds": split_names("--kinds", kinds),
        "categories": split_names("--categories", categories),
        "min_impact": read_min_impact(min_impact),
    }
    if follow:
        if not (module := load_extension().changes):
            fail("--follow needs the application, which is not installed")
        ours = import_module(module)
        ours.follow_changes(home, filters, since, once=once, ambiguous=ambiguous)
        return
    with closing(Reader(locate_warehouse(home), ambiguous=ambiguous)) as reader:
        digest = compute_digest(
            reader,
            since="yesterday" if since is None else since,
            until=until,
            limit=LISTED if limit is None and form != "json" else limit,
            **filters,
        )
    text = format_digest(digest, form or "table")
    is_table = form in (None, "table")
    print_text(fit_encoding(text, sys.stdout.encoding) if is_table else text)


def split_names(option: str, given: str | None) -> list[str] | None:
    """Return the names in a comma list, None if the option is not given."""
    if given is None:
        return None
    names = [name.strip() for name in decode_argument(given, option).split(",") if name.strip()]
    if not names:
        raise InvalidArgument(f"{option} is empty; expected {option} a,b, or no {option} for all")
    return names


def export(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Write to this file; replace it.", callback=local_file),
    ],
    coins: CoinsOption = None,
    ambiguous: AmbiguousOption = "raise",
    categories: CategoriesOption = None,
    min_impact: MinImpactOption = None,
    estimated: Annotated[
        Literal["include", "drop", "only"],
        typer.Option(help="Show periods and deadlines, on their last day, or leave them out."),
    ] = "drop",
    cancelled: Annotated[
        Literal["show", "drop"],
        typer.Option(help="Show cancelled and withdrawn events as cancelled, or leave them out."),
    ] = "show",
    starts: Annotated[
        str | None, typer.Option("--from", help="The first event date.", show_default="30 days ago")
    ] = None,
    ends: Annotated[
        str | None, typer.Option("--to", help="The last event date, inclusive.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Show the knowledge of this time.", show_default="now")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Write at most this many events.")
    ] = 10_000,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Write events as an iCalendar file, for Google Calendar, Outlook, Apple and others."""
    from almanac.calendar.feed import FeedQuery, write_feed
    from almanac.database import open_database

    query = FeedQuery(
        coins=split_names("--coins", coins),
        categories=split_names("--categories", categories),
        min_impact=read_min_impact(min_impact),
        estimated=estimated,
        cancelled=cancelled,
        starts=starts,
        ends=ends,
        as_of=as_of,
        limit=limit,
    )
    warehouse = locate_warehouse(home)
    refuse_part_of_home(output, warehouse)
    with open_database(warehouse, ambiguous=ambiguous) as database:
        feed = write_feed(database, query)
    if names_a_stream(output):
        with output.open("ab") as stream:
            stream.write(feed.content)
    else:
        with replace_file(resolve_target(output), is_durable=False) as staged:
            staged.write_bytes(feed.content)
    if as_json:
        found = {"file": str(output), "events": feed.events, "total": feed.total}
        sys.stdout.write(json_text({**found, "truncated": feed.is_truncated}) + "\n")
    else:
        said = [f"{count_noun(feed.events, 'event')} in {output}", *feed.notes]
        people.print("\n".join(said), soft_wrap=True)
    if feed.is_truncated:
        warnings.print(
            f"almanac: the file has {feed.events:,} of {feed.total:,} events, the earliest dates. "
            "Select fewer events, or raise --limit.",
            soft_wrap=True,
        )
