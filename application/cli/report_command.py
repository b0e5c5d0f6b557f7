"""`almanac report`: coming events, changes and the quality of the data, as an HTML file."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer

from almanac.coins import resolve_slugs
from almanac.commands import (
    AmbiguousOption,
    CategoriesOption,
    CoinsOption,
    MinImpactOption,
    split_names,
)
from almanac.console import EXIT_USAGE, HomeOption, fail, local_file, people, show_steps
from almanac.core.timestamps import utc_now
from almanac.database import open_database
from almanac.digest import read_last_known
from almanac.events import read_min_impact
from almanac.reading.row_files import refuse_part_of_home
from application.cli.options import instant_option, settings_of
from application.web import html_report
from pipeline.home_location import locate_existing_home
from warehouse.files.storage import Storage


def report(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file and replace it.",
            show_default="report-DATE.html in this folder",
            callback=local_file,
        ),
    ] = None,
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Begin the changes where the last report ended.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="The start of the changes.", show_default="the last 7 days"
        ),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Report what was known at this time.", show_default="now")
    ] = None,
    coins: CoinsOption = None,
    ambiguous: AmbiguousOption = "raise",
    categories: CategoriesOption = None,
    min_impact: MinImpactOption = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days ahead to show.")] = 14,
    home: HomeOption = None,
) -> None:
    """Write coming events, changes and data quality to one HTML file."""
    if since_last and (since or as_of):
        fail("--since-last can't be used with --since or --as-of", code=EXIT_USAGE)
    begin = None if since is None else instant_option("--since", since)
    at = None if as_of is None else instant_option("--as-of", as_of)
    settings, now, least = settings_of(home), utc_now(), read_min_impact(min_impact)
    place = locate_existing_home(settings)
    path = output or Path(f"report-{(at or now).astimezone(UTC):%Y-%m-%d}.html")
    path.parent.stat()  # Else a misspelt folder would be made.
    refuse_part_of_home(path, place.warehouse)
    with show_steps("Writing the report"), open_database(place.warehouse) as database:
        reader = database.reader
        slugs = resolve_slugs(reader, split_names("--coins", coins), at, ambiguous) or ()
        named = tuple(sorted(split_names("--categories", categories) or ()))
        name = f"{html_report.REPORT} {','.join(sorted(slugs))};{','.join(named)};{least or ''}"
        next_one: AbstractContextManager[html_report.ReportRequest]
        if since_last:
            next_one = html_report.next_report(place, reader, name, now)
        else:
            until = at or read_last_known(reader).at
            start = begin or until - html_report.FIRST_PERIOD
            next_one = nullcontext(html_report.ReportRequest(start, until, as_of=at))
        with next_one as request:
            request = replace(
                request,
                days=days,
                coins=tuple(f"slug:{slug}" for slug in slugs),
                categories=named,
                min_impact=least,
            )
            text = html_report.make_html(settings, place, database, request)
            Storage(path.parent).put(path.name, text.encode())
    period = f"{request.since:%Y-%m-%d %H:%M} to {request.until:%Y-%m-%d %H:%M} UTC"
    size = f"{len(text.encode()) / 1000:,.0f} kB"
    people.print(f"Wrote {path} ({size}): changes from {period}.", soft_wrap=True)
