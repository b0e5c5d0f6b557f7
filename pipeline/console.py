"""The output of the command line: tables for people, JSON for programs, errors in one line.

Only this module writes to a terminal. It prints text, never markup, and shows control characters in
escaped form, since most texts come from a service.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from almanac.forms import cell, escaped_in_json, fitted, plain, plain_line
from resources import waits
from warehouse.errors import QUERY_INTERRUPTED

if TYPE_CHECKING:
    from warehouse.batch_problems import BatchProblem

__all__ = ["Column", "Progress", "Table"]

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_WORDS: Final = re.compile(r"[^_]*_+|[^_]+")
INTERRUPTED = "interrupted. Finished work is kept; run the command again to resume."


class PlainConsole(Console):
    """A console that prints every text as it is, also in the cells of a table."""

    def render_str(self, text: str, **options: Any) -> Text:
        shown = {**options, "emoji": False, "markup": False, "highlight": False}
        return super().render_str(fitted(plain(text), self.encoding), **shown)


people = PlainConsole(highlight=False)
warnings = PlainConsole(stderr=True, highlight=False)


def folded(*lines: object) -> Text:
    """Return a cell of these lines, each wrapped instead of truncated."""
    text = "\n".join(plain_line(str(line)) for line in lines)
    return Text(fitted(text, people.encoding), overflow="fold")


def print_json(value: Any) -> None:
    """Write one JSON value on a line of its own, at once."""
    sys.stdout.write(escaped_in_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Write a text as it is, except for characters that would act on a terminal."""
    sys.stdout.write(plain(text))
    sys.stdout.flush()


def show_rows(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, vertical: bool | None
) -> None:
    """Print rows as a table or, vertically, one value a line; nothing is cut.

    With `vertical` None they are vertical if a row does not fit the width. Texts may be broken at
    blanks to fit; a word, such as an id, never is.
    """
    names = [fitted(plain_line(name), people.encoding) for name in columns]
    cells = [[fitted(cell(value), people.encoding) for value in row] for row in rows]
    widths = _widths(names, cells)
    if vertical or (vertical is None and widths is None):
        _show_vertically(names, cells)
        return
    table = Table()
    for number, name in enumerate(names):
        width = None if widths is None else widths[number]
        header = Text(name if width is None else "\n".join(_header_lines(name, width)))
        table.add_column(header, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    # A table that must be one and does not fit is as wide as it is: the terminal wraps its lines.
    natural = people.measure(table).maximum if widths is None else None
    people.print(table, width=natural, crop=False, soft_wrap=natural is not None)


def _show_vertically(names: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    longest = max(map(cell_len, names), default=0)
    for number, row in enumerate(cells, 1):
        people.print(f"-[ row {number} ]".ljust(longest + 12, "-"), soft_wrap=True)
        for name, text in zip(names, row, strict=True):
            people.print(f"{name}{' ' * (longest - cell_len(name))}  {text}", soft_wrap=True)


_BESIDE: Final = 3
"""What a column of a table takes of the width beside its text; the table takes one more."""
_LINES_MAX: Final = 3
"""A row of a table has at most so many lines, else rows are shown vertically."""


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int] | None:
    """Return the width of each column so that a table fits; None if it can't."""
    columns = [(name, [row[number] for row in cells]) for number, name in enumerate(names)]
    room = people.width - _BESIDE * len(columns) - 1
    wanted = [max(cell_len(text) for text in (name, *texts)) for name, texts in columns]
    if sum(wanted) <= room:
        return wanted
    widths = [
        max(cell_len(part) for text in texts for part in text.split(" "))
        for name, cells_of in columns
        for texts in [[*_header_lines(name, 0), *cells_of]]
    ]
    while (spare := room - sum(widths)) > 0:
        narrow = [n for n, width in enumerate(widths) if width < wanted[n]]
        for number in narrow[:spare]:
            widths[number] += 1
    tallest = max(
        (-(-cell_len(row[n]) // max(1, widths[n])) for row in cells for n in range(len(row))),
        default=1,
    )
    return widths if spare == 0 and tallest <= _LINES_MAX else None


def _header_lines(name: str, width: int) -> list[str]:
    """Return a name in lines of at most this width, broken behind `_` only."""
    lines = [""]
    for part in _WORDS.findall(name):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def progress(count: str, *, quiet: bool) -> Progress:
    """Return a bar with a count, as `{task.completed} of {task.total}`, time and description.

    It shows nothing unless standard error is a terminal, where it would leave empty lines.
    """
    return Progress(
        BarColumn(bar_width=24),
        _PlainColumn(count),
        TimeElapsedColumn(),
        _PlainColumn("{task.description}"),
        console=warnings,
        transient=True,
        disable=quiet or not warnings.is_terminal,
    )


def show_problems(problems: "Iterable[BatchProblem]", *, on: Console = people) -> None:
    """Print a line for each partial, flagged or quarantined batch."""
    for problem in problems:
        on.print(str(problem), soft_wrap=True)


class _PlainColumn(TextColumn):
    def render(self, task: Task) -> Text:
        return Text(fitted(plain_line(self.text_format.format(task=task)), warnings.encoding))


def _show_wait(wait: waits.Wait) -> None:
    # Above the progress bar if there is one.
    warnings.print(str(wait), soft_wrap=True)


def show_waits() -> None:
    """Print on standard error what a command waits for, and how long."""
    waits.listen(_show_wait)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for a signal that arrives as a RuntimeError.

    DuckDB raises one for Ctrl-C in a query. Python 3.11 wraps what is raised while a class is made,
    as during an import.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != QUERY_INTERRUPTED and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from error


@contextmanager
def errors_as_messages(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors that a person can act on into one line and an exit code."""
    try:
        yield
    except errors as error:
        fail(str(error))


def fail(message: str, *, code: int = EXIT_ERROR) -> NoReturn:
    """Print a message on standard error, and end with an exit code."""
    warnings.print(f"almanac: {message}", soft_wrap=True)
    raise typer.Exit(code)


def quota_left(remaining: int | None, quota: int | None, *, is_unlimited: bool) -> str:
    """Return a text for the quota left; what the service did not report is not guessed."""
    if is_unlimited:
        return "no limit"
    if quota is None:
        return "not reported" if remaining is None else f"{remaining:,} left"
    return f"{'?' if remaining is None else f'{remaining:,}'} of {quota:,}"
