"""`almanac report`: coming events, changes and the quality of the data, as a file or a post."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from almanac.coins import resolve_slugs
from almanac.commands import split_names
from almanac.console import EXIT_USAGE, fail, local_file, people, print_text, show_steps
from almanac.database import open_database
from almanac.digest import format_digest, read_last_known
from almanac.reading.row_files import refuse_part_of_home
from application.cli.options import instant_option
from application.web import html_report
from pipeline.home_location import locate_existing_home
from pipeline.settings import read_settings
from warehouse.clock import utc_now
from warehouse.files.storage import Storage


class ReportForm(StrEnum):
    """The format: the whole report as HTML, or its changes alone."""

    HTML = "html"
    MARKDOWN = "markdown"
    SLACK = "slack"
    JSON = "json"


def report(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file and replace it.",
            show_default="report-DATE.html in this folder; standard output for other formats",
            callback=local_file,
        ),
    ] = None,
    form: Annotated[
        ReportForm, typer.Option("--format", "-F", help="The report as html, or its changes alone.")
    ] = ReportForm.HTML,
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
    coins: Annotated[
        str | None, typer.Option(help="Slugs, tickers or names, separated by commas.")
    ] = None,
    category: Annotated[str | None, typer.Option(help="The name of a category.")] = None,
    min_impact: Annotated[
        float | None, typer.Option(help="The lowest score of coming events and changes, 0 to 10.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days ahead to show.")] = 14,
    post: Annotated[
        bool, typer.Option("--post", help="Post the changes since the last post; write no file.")
    ] = False,
) -> None:
    """Report what is coming, what changed and data quality; or post what changed.

    --post sends the changes to ALMANAC_DIGEST_URL: Slack gets a message, other addresses JSON.
    """
    if since_last and (since or as_of):
        fail("--since-last can't be used with --since or --as-of", code=EXIT_USAGE)
    begin = None if since is None else instant_option("--since", since)
    at = None if as_of is None else instant_option("--as-of", as_of)
    settings, home, now = read_settings(), locate_existing_home(), utc_now()
    if post:
        posted = html_report.post_digest(settings, home, now)
        nothing = "Nothing to post: nothing was published since the last post."
        people.print(f"Posted: {posted}." if posted else nothing, soft_wrap=True)
        return
    file = f"report-{(at or now).astimezone(UTC):%Y-%m-%d}.html"
    path = output or (Path(file) if form is ReportForm.HTML else None)
    if path is not None:
        path.parent.stat()  # Else a misspelt folder would be made.
        refuse_part_of_home(path, home.warehouse)
    with show_steps("Writing the report ..."), open_database(home.warehouse) as database:
        reader = database.reader
        slugs = resolve_slugs(reader, split_names("--coins", coins)) or ()
        name = f"{html_report.REPORT} {','.join(sorted(slugs))};{category or ''};{min_impact or ''}"
        next_one: AbstractContextManager[html_report.ReportRequest]
        if since_last:
            next_one = html_report.next_report(home, reader, name, now)
        else:
            until = at or read_last_known(reader).at
            start = begin or until - html_report.FIRST_PERIOD
            next_one = nullcontext(html_report.ReportRequest(start, until, as_of=at))
        with next_one as request:
            request = replace(
                request,
                days=days,
                coins=tuple(f"slug:{slug}" for slug in slugs),
                category=category,
                min_impact=min_impact,
            )
            if form is ReportForm.HTML:
                text = html_report.make_html(settings, home, database, request)
            else:
                text = format_digest(html_report.make_digest(reader, request), form.value)
            if path is None:
                print_text(text)
            else:
                Storage(path.parent).put(path.name, text.encode())
    if path is not None:
        period = f"{request.since:%Y-%m-%d %H:%M} to {request.until:%Y-%m-%d %H:%M} UTC"
        size = f"{len(text.encode()) / 1000:,.0f} kB"
        people.print(f"Wrote {path} ({size}): changes from {period}.", soft_wrap=True)
