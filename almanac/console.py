"""The terminal: texts and tables for people, errors in one line, exit codes, shared options.

Everything is printed as text, never as markup, and control characters are escaped: most texts come
from a service. Values for programs are written as bytes or JSON by the commands.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.progress import Progress, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from almanac.core import progress
from almanac.core.errors import QUERY_INTERRUPTED, InvalidArgument
from almanac.core.text import fit_encoding, format_cell, plain, plain_line
from almanac.user_files import local_path

__all__ = ["Column", "Table"]

EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
SHOWN_MAX: Final = 10_000_000
"""Most characters in rows that are shown; laying out a table of two million takes a second."""
INTERRUPTED: Final = "interrupted. Finished work is kept; run the command again to resume."
_UNBOUNDED: Final = (1_000_000, 25)
"""Columns and lines where there is no terminal."""


class PlainConsole(Console):
    """A console that prints every text unchanged, also in table cells.

    Without a terminal it wraps lines only at the width in COLUMNS, if there is one.
    """

    @property  # type: ignore[misc]  # Nobody sets the size.
    def size(self) -> ConsoleDimensions:
        # Not what rich says: a variable that forces colours does not make a pipe a terminal.
        if self.file.isatty():
            return super().size
        return ConsoleDimensions(*get_terminal_size(_UNBOUNDED))

    def on_broken_pipe(self) -> None:
        self.quiet = True  # The command goes on, and ends with its own exit code.

    def render_str(self, text: str, **options: Any) -> Text:
        shown = {**options, "emoji": False, "markup": False, "highlight": False}
        return super().render_str(fit_encoding(plain(text), self.encoding), **shown)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def local_file(given: Path | None) -> Path | None:
    """Return a path of a command line."""
    try:
        return None if given is None else local_path(given, "the path")
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="The home, or a warehouse.duckdb.",
        show_default="ALMANAC_HOME of the application, or data",
        callback=local_file,
    ),
]

people = PlainConsole(highlight=False)
warnings = PlainConsole(stderr=True, highlight=False)


def fail(message: str, *, code: int = EXIT_ERROR) -> NoReturn:
    """Print a message on standard error, and end with an exit code."""
    warnings.print(f"almanac: {message}", soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for a signal that arrives as a RuntimeError.

    DuckDB raises one for Ctrl-C in a query. Python 3.11 wraps an exception that is raised while a
    class is made, as during an import.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != QUERY_INTERRUPTED and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from error


class PlainColumn(TextColumn):
    """A part of a progress line, printed as it is."""

    def render(self, task: Task) -> Text:
        return Text(fit_encoding(plain_line(self.text_format.format(task=task)), warnings.encoding))


_FIRST_LINE_S: Final = 10.0
_NEXT_LINES_S: Final = 30.0


@contextmanager
def show_steps(title: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what a command does, and for how long: a title and the phases.

    Yields a function for another title. A thread that works beside another has a phase of its own.
    On a terminal, progress is one line that is updated and finally removed. Elsewhere, a line is
    printed after ten seconds and then every half minute.
    """
    columns = (PlainColumn("{task.description}"), TimeElapsedColumn())
    # Not what rich says: a variable that forces colours does not make a pipe a terminal.
    is_terminal = sys.stderr.isatty()
    line = Progress(*columns, console=warnings, transient=True, disable=not is_terminal)
    task, began, ended = line.add_task(f"{title} ..."), monotonic(), threading.Event()
    phases: dict[int, str] = {}

    def print_lines() -> None:
        wait_s = _FIRST_LINE_S
        while not ended.wait(wait_s):
            wait_s = _NEXT_LINES_S
            shown = line.tasks[0].description
            warnings.print(f"{shown} ({monotonic() - began:.0f} s)", soft_wrap=True)

    def show_phase(name: str, done: int, total: int | None) -> None:
        phases[threading.get_ident()] = progress.describe_phase(name, done, total)
        line.update(task, description=f"{title}: {'; '.join(phases.values())} ...")

    def show_title(next_title: str) -> None:
        nonlocal title
        title = next_title
        phases.clear()
        line.update(task, description=f"{title} ...")

    if not is_terminal:
        threading.Thread(target=print_lines, name="steps", daemon=True).start()
    try:
        with line, progress.listening(phase=show_phase):
            yield show_title
    finally:
        ended.set()


def print_text(text: str) -> None:
    """Write a text unchanged, except for characters that would act on a terminal."""
    sys.stdout.write(plain(text))
    sys.stdout.flush()


def show_rows(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, vertical: bool | None
) -> None:
    """Print rows as a table or, vertically, one value a line; nothing is cut.

    With `vertical` None they are vertical if the table does not fit the width. Rows of more than
    `SHOWN_MAX` characters end the command before they are laid out.
    """
    names = [fit_encoding(plain_line(name), people.encoding) for name in columns]
    cells: list[list[str]] = []
    characters = 0
    for row in rows:
        cells.append([fit_encoding(format_cell(value), people.encoding) for value in row])
        characters += sum(map(len, cells[-1]))
        if characters > SHOWN_MAX:
            fail(
                f"the rows have more than {SHOWN_MAX:,} characters, too many to show. Print fewer "
                "rows (--limit), or let `almanac sql` write them to a file (--output)."
            )
    table = Table(*(Column(Text(name)) for name in names))
    for row in cells:
        table.add_row(*map(Text, row))
    natural = people.measure(table, options=people.options.update(width=_UNBOUNDED[0])).maximum
    if vertical or (vertical is None and natural > people.width):
        _show_vertically(names, cells)
    else:
        people.print(table)


def _show_vertically(names: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    longest = max(map(cell_len, names), default=0)
    for number, row in enumerate(cells, 1):
        people.print(f"-[ row {number} ]".ljust(longest + 12, "-"), soft_wrap=True)
        for name, text in zip(names, row, strict=True):
            people.print(f"{name}{' ' * (longest - cell_len(name))}  {text}", soft_wrap=True)
