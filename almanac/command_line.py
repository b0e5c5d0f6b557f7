"""The command `almanac` of the package: questions about a published warehouse.

    almanac sql "SELECT title, displayed_date FROM upcoming_events LIMIT 5"

The application has these commands and more (pipeline/cli); an installed wheel has this one. The
home is an option, since the package reads no environment. Exit codes: 0; 1 if the warehouse or a
statement is at fault; 2 if an argument is; 130 after Ctrl-C. Errors are one text on standard error.
"""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from almanac.errors import AlmanacError, InvalidArgument, WarehouseError
from almanac.forms import accept_any_text, fitted, plain
from almanac.instants import refuse_misread
from almanac.user_files import local_path

EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_UNDECODED: Final = re.compile("[\ud800-\udfff]")
"""What Python makes of the bytes of an argument that the locale does not decode."""
_INTERRUPTED: Final = "interrupted; nothing was changed"
_NO_MEMORY: Final = (
    "the memory is used up. Show fewer rows (--limit), or print a form that is not a table "
    "(--format csv)."
)
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?B)", re.IGNORECASE)
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY_LEAST: Final = 100_000_000
_INTERRUPTED_QUERY: Final = "Query interrupted"
"""Text of the RuntimeError that DuckDB raises if a signal interrupts a query."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. `words` None are those of the process."""
    accept_any_text()
    try:
        given = _parser().parse_args(words)
        # Only a process that exists for the command may be bounded, and ended at once.
        given.is_process = words is None
        code: int = given.run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the pipe. Python would report it once more when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except WarehouseError as error:
        return _failed(str(error), EXIT_ERROR)
    except AlmanacError as error:
        return _failed(str(error), EXIT_USAGE)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        return _failed(f"{where}{error.strerror or error}", EXIT_ERROR)
    except KeyboardInterrupt:
        return _failed(_INTERRUPTED, EXIT_INTERRUPTED)
    except MemoryError:
        return _failed(_NO_MEMORY, EXIT_ERROR)
    except RuntimeError as error:
        if str(error) != _INTERRUPTED_QUERY:
            raise
        return _failed(_INTERRUPTED, EXIT_INTERRUPTED)


def _failed(message: str, code: int) -> int:
    sys.stderr.write(plain(f"almanac: {message}\n"))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="almanac",
        description="Questions about a published warehouse of dated crypto-market events. "
        "Instants are UTC.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_add_sql, _add_audit, _add_changes, _add_coverage, _add_resolve):
        add(commands)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> argparse.ArgumentParser:
    """Add a command with the options that all of them have."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--home",
        type=_path,
        default=Path("data"),
        help="the home of the application, or a warehouse.duckdb (default: %(default)s)",
    )
    return parser


def _path(text: str) -> Path:
    try:
        return local_path(text, "the path")
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_sql(commands: Any) -> None:
    summary = "Run one statement that reads; `events_as_of(ts)` shows what was known at `ts`."
    parser = _command(commands, "sql", _sql, summary)
    parser.add_argument("query", nargs="?", help="the statement; - reads it from standard input")
    parser.add_argument("-f", "--file", type=_path, help="read the statement from this file")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="the text of a parameter $NAME; repeatable",
    )
    parser.add_argument(
        *("-F", "--format"),
        choices=("table", "tsv", "csv", "json"),
        help="by default a table on a terminal, else tsv",
    )
    parser.add_argument(
        "--limit", type=int, default=40, help="the most rows of a table (default: %(default)s)"
    )
    parser.add_argument(
        "--memory",
        type=_bytes,
        metavar="SIZE",
        help="the memory of the query, such as 500MB (default: 2GB); it may spill twice as much",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="the time of the query (default: 300)",
    )


def _sql(given: argparse.Namespace) -> int:
    from almanac.forms import text_table
    from almanac.reader import find_file
    from almanac.reading.answers import stream_answer
    from almanac.reading.published import connected, run_sql
    from almanac.reading.query_limits import QueryHooks, QueryLimits, bound_memory, held_signals

    # While DuckDB runs, Python's own handler may come late, or not at all.
    hold_signals = partial(held_signals, (signal.SIGINT, signal.SIGTERM))
    usual = QueryLimits()
    limits = QueryLimits(
        given.memory or usual.memory_bytes,
        timeout_s=given.timeout or usual.timeout_s,
        memory_name="--memory",
        timeout_name="--timeout",
    )
    program = QueryHooks(hold_signals)
    if given.is_process:
        bound_memory(limits)
        program = QueryHooks(hold_signals, on_stuck=_end_stuck)
    statement, values = _statement(given), dict(map(parameter_of, given.param))
    file = find_file(given.home)
    form: Any = given.format or ("table" if sys.stdout.isatty() else "tsv")
    if form != "table":
        # A cell that a spreadsheet would run gets a mark, as in the application.
        options: Any = {"values": values, "formulas": False, "limits": limits, "program": program}
        stream_answer(file, statement, sys.stdout.buffer, form, **options)
        return 0
    with connected(file, limits=limits) as connection:
        options = {"values": values, "limits": limits, "program": program}
        answer = run_sql(connection, statement, rows_max=max(1, given.limit), **options)
    shown = f", {len(answer.rows)} shown (--limit)" if answer.count > len(answer.rows) else ""
    _print(text_table(answer.columns, answer.rows))
    _print(f"{answer.count:,} row{'' if answer.count == 1 else 's'}{shown}")
    return 0


def _end_stuck(why: str | None) -> None:
    """End the process for a query that does not: some functions never check for an interrupt."""
    from almanac.reading.query_limits import end_process

    message = _INTERRUPTED if why is None else f"the query was stopped: {why}"
    end_process(f"almanac: {message}\n", EXIT_INTERRUPTED if why is None else EXIT_ERROR)


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].upper()])
    if size < _MEMORY_LEAST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size of 100MB or more, as 500MB")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, such as 60")
    return seconds


def _statement(given: argparse.Namespace) -> str:
    if (given.query is None) == (given.file is None):
        raise InvalidArgument("expected one statement: QUERY, or -f FILE, or - for standard input")
    if given.file is None:
        if given.query == "-":
            return standard_input()
        return argument_text(given.query, "the statement")
    try:
        file_text: str = given.file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgument(f"{given.file} is not UTF-8 text. No query was run.") from None
    return file_text


def argument_text(given: str, name: str) -> str:
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


def standard_input() -> str:
    """Return the text of standard input, which is UTF-8 whatever the locale.

    Raises:
        InvalidArgument: it is not.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgument("standard input is not UTF-8 text. No query was run.") from None


def parameter_of(given: str) -> tuple[str, str]:
    """Return the name and the text of a parameter of a statement.

    Raises:
        InvalidArgument: it is not NAME=TEXT, or the text is an instant whose zone is abbreviated.
    """
    name, sign, text = argument_text(given, "--param").partition("=")
    if not sign or not name.isidentifier():
        raise InvalidArgument(f"--param {given}: expected NAME=TEXT, such as ts=2026-03-02")
    refuse_misread(text, f"--param {name}")
    return name, text


def _add_audit(commands: Any) -> None:
    summary = "Show every row of a back-test that used something that nobody knew yet."
    parser = _command(commands, "audit", _audit, summary)
    parser.add_argument("signals", type=_path, help="a Parquet or CSV file, a folder or a pattern")
    parser.add_argument("--decided-at", metavar="COLUMN", help="the column of the decision")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="COLUMN=FIELD",
        help="a column with another name, such as score=impact; repeatable",
    )
    parser.add_argument(
        "--basis",
        choices=("observed", "claimed"),
        default="observed",
        help="what was pulled, or also what the service claims (default: %(default)s)",
    )
    parser.add_argument("--tz", default="UTC", help="the zone of instants that name none")
    parser.add_argument("--html", type=_path, metavar="FILE", help="also write a page")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if it is not clean")
    parser.add_argument(
        "--max-unjudged",
        metavar="ROWS|SHARE",
        help="exit with 1 if more rows can't be judged: a number, or a share such as 5%%",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="FIELDS",
        help="exit with 1 if one of these was not judged, such as date,impact",
    )
    parser.add_argument(
        "--universe",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a filter of the rule that selected the rows, such as within=7d; repeatable",
    )
    parser.add_argument("--limit", type=int, help="the most findings to print")


def _audit(given: argparse.Namespace) -> int:
    from almanac.audit.audit import AuditOptions, run_audit

    options = AuditOptions(
        signals=given.signals,
        decided_at=given.decided_at,
        fields=given.field,
        basis=given.basis,
        tz=given.tz,
        html=given.html,
        as_json=given.json,
        is_strict=given.strict,
        max_unjudged=given.max_unjudged,
        require=given.require,
        universe=given.universe,
        limit=given.limit,
    )
    return run_audit(given.home, options, sys.stdout.write)


def _add_changes(commands: Any) -> None:
    summary = "Show what became known in a period: cancelled, moved, rescored, new events."
    parser = _command(commands, "changes", _changes, summary)
    parser.add_argument(
        "--since",
        default="yesterday",
        help="an instant, today or yesterday; what became known after it (default: %(default)s)",
    )
    parser.add_argument("--until", help="the end of the period (default: now)")
    parser.add_argument("--coins", help="slugs, tickers or names, separated by commas")
    parser.add_argument("--kinds", help="kinds of change, separated by commas, as cancelled")
    parser.add_argument("--min-impact", type=float, help="the least score, 0 to 10")
    parser.add_argument(
        "--format", choices=("table", "markdown", "json", "slack"), default="table", dest="form"
    )
    parser.add_argument(
        "--limit", type=int, help="the most events of a kind (default: 10; all for json)"
    )


def _changes(given: argparse.Namespace) -> int:
    from almanac.digest import LISTED, digest_of, in_form
    from almanac.reader import Reader, find_file

    limit = LISTED if given.limit is None and given.form != "json" else given.limit
    reader = Reader(find_file(given.home))
    try:
        digest = digest_of(
            reader,
            since=given.since,
            until=given.until,
            coins=words_of("--coins", given.coins),
            kinds=words_of("--kinds", given.kinds),
            min_impact=given.min_impact,
            limit=limit,
        )
    finally:
        reader.close()
    text = in_form(digest, given.form)
    sys.stdout.write(fitted(text, sys.stdout.encoding) if given.form == "table" else text)
    return 0


def words_of(option: str, given: str | None) -> list[str] | None:
    """Return the words of a comma list, None if the option is not given.

    Raises:
        InvalidArgument: it has no word, as one of an unset variable of a shell.
    """
    if given is None:
        return None
    words = [word.strip() for word in argument_text(given, option).split(",") if word.strip()]
    if not words:
        raise InvalidArgument(f"{option} is empty; expected {option} a,b, or no {option} for all")
    return words


def _add_coverage(commands: Any) -> None:
    summary = "Show what had been pulled by an instant; what no pull covered can't be judged."
    parser = _command(commands, "coverage", _coverage, summary)
    parser.add_argument("at", nargs="?", help="the instant (default: now)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def _coverage(given: argparse.Namespace) -> int:
    from almanac.database import open_database
    from almanac.forms import cell, text_table

    with open_database(given.home) as database:
        found = database.coverage(given.at)
    windows = found.windows.rows()
    if given.json:
        instants = {"first_pull_at": found.first_pull_at, "last_pull_at": found.last_pull_at}
        _print_json({"at": found.at, **instants, "windows": windows})
        return 0
    if found.first_pull_at is None:
        _print(f"Nothing had been pulled at {cell(found.at)}: nothing was known.")
        return 0
    _print(
        f"At {cell(found.at)} UTC: events pulled first at {cell(found.first_pull_at)}, last at "
        f"{cell(found.last_pull_at)}."
    )
    shown = ("feed", "plan", "lower", "upper", "coins", "categories", "observed_at")
    _print(text_table(shown, [[row[name] for name in shown] for row in windows]))
    return 0


def _add_resolve(commands: Any) -> None:
    summary = "Show the coin that a slug, ticker or name stands for."
    parser = _command(commands, "resolve", _resolve, summary)
    parser.add_argument("coin", help="a ticker that several coins have is an error that names them")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def _resolve(given: argparse.Namespace) -> int:
    from almanac.database import open_database
    from almanac.forms import text_table

    with open_database(given.home) as database:
        coin = database.resolve(argument_text(given.coin, "the coin"))
    row = {"slug": coin.slug, "symbol": coin.symbol, "name": coin.name, "rank": coin.rank}
    if given.json:
        _print_json(row)
    else:
        _print(text_table(list(row), [list(row.values())]))
    return 0


def _print(text: str) -> None:
    sys.stdout.write(fitted(plain(text), sys.stdout.encoding) + "\n")


def _print_json(value: Any) -> None:
    from almanac.forms import json_text

    sys.stdout.write(json_text(value) + "\n")


if __name__ == "__main__":
    sys.exit(main())
