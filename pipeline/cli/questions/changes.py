"""`almanac changes`: what became known in a period, as a digest; or post the digest of the day."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from almanac.forms import fitted
from almanac.reader import Reader, find_file
from pipeline.console import EXIT_USAGE, fail, people, print_text
from pipeline.home_location import locate_existing_home
from pipeline.settings import SettingsError, read_settings
from warehouse.clock import utc_now


class DigestFormat(StrEnum):
    """The output format of a digest."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    SLACK = "slack"


def changes(
    since: Annotated[
        str | None,
        typer.Option(
            help="An instant, today or yesterday: what became known after it.",
            show_default="yesterday",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="The end of the period.", show_default="now")
    ] = None,
    coins: Annotated[
        str | None, typer.Option(help="Slugs, tickers or names, separated by commas.")
    ] = None,
    kinds: Annotated[
        str | None, typer.Option(help="Kinds of change, separated by commas, such as cancelled.")
    ] = None,
    min_impact: Annotated[float | None, typer.Option(help="The least score, 0 to 10.")] = None,
    form: Annotated[
        DigestFormat, typer.Option("--format", "-F", help="The output format.")
    ] = DigestFormat.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most events of a kind.", show_default="10; all of them for json"
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Another home, or a warehouse.duckdb.", show_default="ALMANAC_HOME, or data"
        ),
    ] = None,
    post: Annotated[
        bool,
        typer.Option(
            "--post", help="Post what became known since the last digest to ALMANAC_DIGEST_URL."
        ),
    ] = False,
) -> None:
    """Show what became known in a period: cancelled, moved, rescored, new events."""
    if post:
        given = (since, until, coins, kinds, min_impact, limit, home)
        if any(value is not None for value in given):
            fail("--post takes no other option: it posts what is due", code=EXIT_USAGE)
        _post()
        return
    # Imported here, since help needs none of it.
    from almanac.command_line import words_of
    from almanac.digest import LISTED, digest_of, in_form

    reader = Reader(locate_existing_home().warehouse if home is None else find_file(home))
    try:
        digest = digest_of(
            reader,
            since="yesterday" if since is None else since,
            until=until,
            coins=words_of("--coins", coins),
            kinds=words_of("--kinds", kinds),
            min_impact=min_impact,
            limit=limit or (None if form is DigestFormat.JSON else LISTED),
        )
    finally:
        reader.close()
    text = in_form(digest, form.value)
    print_text(fitted(text, sys.stdout.encoding) if form is DigestFormat.TABLE else text)


def _post() -> None:
    settings = read_settings()
    if not settings.digests:
        raise SettingsError("--post needs ALMANAC_DIGEST_URL, which is not set.")
    home = locate_existing_home()
    # Imported here, since only a post needs the HTTP library.

    from pipeline.health.digests import DigestNotPosted, post_digest

    try:
        posted = post_digest(settings, home, utc_now())
    except DigestNotPosted as error:
        fail(str(error))
    if posted is None:
        people.print("Nothing to post: no pull was published since the last digest.")
        return
    period = f"{posted.since:%Y-%m-%d %H:%M} to {posted.until:%Y-%m-%d %H:%M} UTC"
    people.print(f"Posted: {period}: {posted.summary}.", soft_wrap=True)
