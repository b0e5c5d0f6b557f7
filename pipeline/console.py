"""The output of the command line: tables for people, JSON for programs, errors in one line.

Only this module writes to a terminal. It prints text, never markup, and shows control characters in
escaped form, since most texts come from a service.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from warehouse.errors import QUERY_INTERRUPTED
from warehouse.plain_text import escaped_in_json, plain, plain_line

if TYPE_CHECKING:
    from warehouse.batch_problems import BatchProblem

__all__ = ["Column", "Progress", "Table"]

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted. Finished work is kept; run the command again to resume."


class PlainConsole(Console):
    """A console that prints every text as it is, also in the cells of a table."""

    def render_str(self, text: str, **options: Any) -> Text:
        shown = {**options, "emoji": False, "markup": False, "highlight": False}
        return super().render_str(plain(text), **shown)


people = PlainConsole(highlight=False)
warnings = PlainConsole(stderr=True, highlight=False)


def folded(value: object) -> Text:
    """Return a cell that is wrapped instead of truncated."""
    return Text(plain_line(str(value)), overflow="fold")


def print_json(value: Any) -> None:
    """Write one JSON value on a line of its own, at once."""
    sys.stdout.write(escaped_in_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


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
        return Text(plain_line(self.text_format.format(task=task)))


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
