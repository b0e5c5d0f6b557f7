"""The options that several commands have, and dates and times of a command line."""

import re
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from almanac.console import EXIT_USAGE, fail
from almanac.core.timestamps import read_past_time, utc_now
from pipeline.settings import Settings, read_settings

PlanName = Literal["free", "standard", "pro", "elite", "enterprise"]
FirstLineOption = Annotated[
    bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
HostOption = Annotated[str, typer.Option(help="The address to listen on.")]
CorsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="An origin whose pages may send requests, such as http://localhost:*; repeatable."
    ),
]
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="The server's folder; by default a part of the home."),
]
YEARS: Final = range(1970, 2201)
"""A year outside is a typing error, and arithmetic on it may overflow."""
_BASE_PATH: Final = re.compile(r"((/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+)?")


def _check_base_path(text: str) -> str:
    if not _BASE_PATH.fullmatch(text):
        fail(f"--base-path {text!r}: expected a path such as /almanac", code=EXIT_USAGE)
    return text


BasePathOption = Annotated[
    str,
    typer.Option(
        help="The path of all addresses behind a proxy, such as /almanac.",
        callback=_check_base_path,
        show_default=False,
    ),
]


def settings_of(home: Path | None) -> Settings:
    """Return the settings with the home of `--home`, a folder or its published file."""
    if home is not None and home.is_file():
        home = home.parent
    return read_settings(None if home is None else str(home))


def instant_option(name: str, text: str) -> datetime:
    """Parse a time, an age or a word such as yesterday; without a zone it is UTC."""
    parsed = read_past_time(text, name, now=utc_now())
    if parsed.year not in YEARS:
        fail(f"{name} {text!r}: expected a year from {YEARS[0]} to {YEARS[-1]}", code=EXIT_USAGE)
    return parsed


def dates_option(begin: str, end: str | None) -> tuple[date, date | None]:
    """Parse the event dates of `--from` and `--to`, both included; the last may be None."""
    lower = _read_date("--from", begin)
    upper = None if end is None else _read_date("--to", end)
    if upper is not None and upper < lower:
        fail(f"--to {upper} is before --from {lower}. Nothing was done.", code=EXIT_USAGE)
    return lower, upper


def _read_date(name: str, text: str) -> date:
    at = instant_option(name, text)
    if at.time() != time():
        fail(f"{name} {text!r}: expected a day, such as {at:%Y-%m-%d}", code=EXIT_USAGE)
    return at.date()
