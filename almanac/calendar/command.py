"""The command `almanac export`: events as an iCalendar file."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from almanac.commands import locate_warehouse, split_names
from almanac.console import HomeOption, JsonOption, local_file, people, warnings
from almanac.reading.row_files import names_a_stream, refuse_part_of_home, replace_file
from almanac.safe_text import count_noun, json_text


def export(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Write to this file; replace it.", callback=local_file),
    ],
    coins: Annotated[
        str | None, typer.Option(help="Slugs, tickers or names, separated by commas.")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Names of categories, separated by commas.")
    ] = None,
    min_impact: Annotated[float | None, typer.Option(help="The lowest score, 0 to 10.")] = None,
    estimated: Annotated[
        Literal["deadline", "drop"],
        typer.Option(help="Show periods and deadlines on their last day, or leave them out."),
    ] = "deadline",
    cancelled: Annotated[
        Literal["show", "drop"],
        typer.Option(help="Show cancelled and withdrawn events as cancelled, or leave them out."),
    ] = "show",
    starts: Annotated[
        str | None, typer.Option("--from", help="The first event date.", show_default="30 days ago")
    ] = None,
    ends: Annotated[
        str | None, typer.Option("--to", help="The end of the event dates, exclusive.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Show the knowledge of this time.", show_default="now")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Write at most this many events.")
    ] = 10_000,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Write events as an iCalendar file, for Google Calendar, Outlook, Apple and others."""
    from almanac.calendar.feed import FeedQuery, write_feed
    from almanac.database import open_database

    query = FeedQuery(
        coins=split_names("--coins", coins),
        categories=split_names("--categories", categories),
        min_impact=min_impact,
        estimated=estimated,
        cancelled=cancelled,
        starts=starts,
        ends=ends,
        as_of=as_of,
        limit=limit,
    )
    warehouse = locate_warehouse(home)
    refuse_part_of_home(output, warehouse)
    with open_database(warehouse) as database:
        feed = write_feed(database, query)
    if names_a_stream(output):
        with output.open("ab") as stream:
            stream.write(feed.content)
    else:
        with replace_file(output) as staged:
            staged.write_bytes(feed.content)
    if as_json:
        found = {"file": str(output), "events": feed.events, "total": feed.total}
        sys.stdout.write(json_text({**found, "truncated": feed.is_truncated}) + "\n")
    else:
        people.print(f"{count_noun(feed.events, 'event')} in {output}", soft_wrap=True)
    if feed.is_truncated:
        warnings.print(
            f"almanac: the file has {feed.events:,} of {feed.total:,} events, the earliest dates. "
            "Select fewer events, or raise --limit.",
            soft_wrap=True,
        )
