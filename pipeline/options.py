"""Options that several commands share, and how they read what a person types."""

from datetime import UTC, date, datetime
from typing import Annotated

import typer

from pipeline.console import EXIT_USAGE, fail

JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def instant_option(name: str, text: str) -> datetime:
    """Return an instant as typed; without a zone it is UTC."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: write it as 2026-03-01 or 2026-03-01T06:00:00Z", code=EXIT_USAGE)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def date_option(name: str, text: str) -> date:
    """Return a date as typed."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: write it as 2026-03-01", code=EXIT_USAGE)
