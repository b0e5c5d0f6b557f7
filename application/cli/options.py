"""The options that several commands have, and dates and times of a command line."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from almanac.console import EXIT_USAGE, fail
from almanac.errors import InvalidArgument
from almanac.timestamps import read_timestamp

FirstLineOption = Annotated[
    bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
HostOption = Annotated[str, typer.Option(help="The address to listen on.")]
CorsOption = Annotated[
    list[str] | None, typer.Option(help="An origin whose pages may send requests; repeatable.")
]
DirOption = Annotated[
    Path | None, typer.Option("--dir", help="The server's folder; by default under ALMANAC_HOME.")
]
YEARS: Final = range(1970, 2201)
"""A year outside is a typing error, and arithmetic on it may overflow."""


def instant_option(name: str, text: str) -> datetime:
    """Parse a time; without a zone it is UTC. An abbreviated zone is refused."""
    try:
        parsed = read_timestamp(text, name)
    except InvalidArgument as error:
        fail(
            f"{name} {text!r}: expected a form such as 2026-03-01 or 2026-03-01T06:00:00Z, and a "
            f"year from {YEARS[0]} to {YEARS[-1]}. {error}",
            code=EXIT_USAGE,
        )
    _check_year(name, text, parsed.year)
    return parsed


def dates_option(begin: str, end: str | None) -> tuple[date, date | None]:
    """Parse the event dates of `--from` and `--to`; without `--to` the last is None."""
    lower = date_option("--from", begin)
    upper = None if end is None else date_option("--to", end)
    if upper is not None and upper < lower:
        fail(f"--to {upper} is before --from {lower}. No request was sent.", code=EXIT_USAGE)
    return lower, upper


def date_option(name: str, text: str) -> date:
    """Parse a date."""
    try:
        parsed = date.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: expected a form such as 2026-03-01", code=EXIT_USAGE)
    _check_year(name, text, parsed.year)
    return parsed


def _check_year(name: str, text: str, year: int) -> None:
    if year not in YEARS:
        fail(
            f"{name} {text!r}: expected a year from {YEARS[0]} to {YEARS[-1]}. Nothing was done.",
            code=EXIT_USAGE,
        )
