"""Options that several commands share, and how they read what a person types."""

from datetime import UTC, date, datetime
from typing import Annotated, Final

import typer

from pipeline.console import EXIT_USAGE, fail

YEARS: Final = range(1970, 2201)
"""Further off it is a slip of the hand, and arithmetic on it may overflow."""
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def instant_option(name: str, text: str) -> datetime:
    """Return an instant as typed; without a zone it is UTC."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: write it as 2026-03-01 or 2026-03-01T06:00:00Z", code=EXIT_USAGE)
    _check_year(name, text, read.year)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def date_option(name: str, text: str) -> date:
    """Return a date as typed."""
    try:
        read = date.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: write it as 2026-03-01", code=EXIT_USAGE)
    _check_year(name, text, read.year)
    return read


def _check_year(name: str, text: str, year: int) -> None:
    if year not in YEARS:
        fail(
            f"{name} {text!r}: expected a year of {YEARS[0]} to {YEARS[-1]}. Nothing was done.",
            code=EXIT_USAGE,
        )
