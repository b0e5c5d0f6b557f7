"""The output of the application's commands: JSON, progress, waits, and errors in one line."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from almanac.console import people, show_rows, show_steps, warnings
from almanac.core.progress import show_progress
from almanac.core.text import escape_json
from resources import waits

if TYPE_CHECKING:
    from warehouse.batch_problems import BatchProblem


def show_records(records: Sequence[Mapping[str, Any]], *columns: str) -> None:
    """Print some fields of records as a table, or vertically if a row does not fit."""
    show_rows(columns, [[record[name] for name in columns] for record in records], vertical=None)


def print_json(value: Any) -> None:
    """Write one JSON value on a line, and flush it."""
    import msgspec

    sys.stdout.write(escape_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


@contextmanager
def show_merge_progress(title: str) -> Iterator[None]:
    """Show the phase of a merge, and how much of it is done, beside a title."""
    with show_steps(f"{title} ...") as step:

        def show(phase: str, done: int, total: int) -> None:
            step(f"{title}: {phase} {done:,} of {total:,} ...")

        with show_progress(show):
            yield


def show_problems(problems: "Iterable[BatchProblem]", *, on: Console = people) -> None:
    """Print a line for each partial, flagged or quarantined batch."""
    for problem in problems:
        on.print(str(problem), soft_wrap=True)


def show_waits() -> None:
    """Print on standard error the reason and length of a wait."""
    waits.listen(lambda wait: warnings.print(wait, soft_wrap=True))


def describe_quota(remaining: int | None, quota: int | None, *, is_unlimited: bool) -> str:
    """Return a text for the remaining quota; an unreported value is shown as unknown."""
    if is_unlimited:
        return "no limit"
    if quota is None:
        return "not reported" if remaining is None else f"{remaining:,} left"
    return f"{'?' if remaining is None else f'{remaining:,}'} of {quota:,}"
