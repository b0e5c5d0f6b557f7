"""The output of the application's commands: JSON, progress, waits, and errors in one line."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from almanac.console import people, show_rows, warnings
from almanac.core import progress
from almanac.core.text import escape_json

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


def show_problems(problems: "Iterable[BatchProblem]", *, on: Console = people) -> None:
    """Print a line for each partial, flagged or quarantined batch."""
    for problem in problems:
        on.print(str(problem), soft_wrap=True)


def show_waits() -> None:
    """Print on standard error the reason and length of a wait."""
    progress.hear_waits(lambda text: warnings.print(text, soft_wrap=True))


def describe_quota(remaining: int | None, quota: int | None, *, is_unlimited: bool) -> str:
    """Return a text for the remaining quota; an unreported value is shown as unknown."""
    if is_unlimited:
        return "no limit"
    if quota is None:
        return "not reported" if remaining is None else f"{remaining:,} left"
    return f"{'?' if remaining is None else f'{remaining:,}'} of {quota:,}"
