"""`almanac backfill`: shows the number of requests of a backfill, and runs it.

It exits with 0 also when the quota runs out before the end: complete months are landed, and the
rest resumes automatically, or with the same command.
"""

import sys
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from almanac.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    JsonOption,
    fail,
    people,
    show_steps,
    warnings,
)
from almanac.core import progress
from application.cli.options import dates_option
from application.console import print_json, show_problems
from pipeline.home_location import locate_home
from pipeline.service_session import open_service
from pipeline.settings import read_settings
from resources.calendar_backfill import Backfill, Source, choose_source
from resources.errors import Defer
from warehouse.history.merge import merge


def backfill(
    begin: Annotated[str, typer.Option("--from", help="First event date, e.g. 2017-01-01.")],
    end: Annotated[
        str | None, typer.Option("--to", help="Last event date; by default two years ahead.")
    ] = None,
    source: Annotated[
        Literal["auto", "list", "export"],
        typer.Option(help="Pull from the list or the export; auto takes fewer requests."),
    ] = "auto",
    max_requests: Annotated[
        int | None,
        typer.Option(min=1, help="Do not start if the backfill takes more requests than this."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pull all events in a range of event dates, month by month, and merge them.

    The price is shown first. If interrupted, run the command again to resume.
    """
    first, last = dates_option(begin, end)
    settings = read_settings()
    home = locate_home(settings)
    try:
        with open_service(settings, work="backfill") as service:
            work = Backfill(service, home.state_storage, first, last)
            prices = work.prices()
            by = choose_source(prices, source)
            if by is None:
                fail("the plan has no export. Not started; use --source list.", code=EXIT_USAGE)
            record: dict[str, Any] = {
                **{"prices": prices, "by": by, "resumed": work.resumed, "notes": work.notes},
                **{"left": service.quota_left, "available": service.available},
            }
            if not as_json:
                _show_price(record)
            elif not yes:
                print_json(record)
            _allow(prices[by], max_requests, yes=yes, can_ask=not as_json and sys.stdin.isatty())
            months = _run(work, by)
        with show_steps("Merging"):
            report = merge(home)
    except Defer as error:
        fail(f"Not started: {error}", code=0)
    except ValueError as error:
        fail(f"{error}. No request was sent.", code=EXIT_USAGE)
    except KeyboardInterrupt:
        text = "Complete months are landed, and `almanac merge` merges them."
        warnings.print(f"Interrupted. {text} Run the command again to resume.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    record |= {
        "months": sorted(month.date() for month in months),
        "rows": sum(batch.rows for batch in work.landed),
        "requests": sum(batch.requests for batch in work.landed),
        "batches": len(work.landed),
        "versions": sum(outcome.versions for outcome in report.outcomes),
        "deferred": "" if work.deferred is None else work.deferred.happened,
        "resume_at": work.deferred and work.deferred.resume_at,
        "problems": report.problems,
    }
    if as_json:
        print_json(record)
    else:
        _show(record)
        show_problems(report.problems)


def _show_price(record: dict[str, Any]) -> None:
    if record["resumed"]:
        people.print(
            "Resuming an interrupted backfill; the number of requests is for the remaining months."
        )
    for by, requests in record["prices"].items():
        chosen = " (chosen)" if by == record["by"] else ""
        people.print(f"By the {by}: up to {requests:,} requests{chosen}.")
    for note in record["notes"]:
        people.print(f"Note: {note}", soft_wrap=True)
    available = record["available"]
    if available is not None:
        people.print(f"This month, backfills may send {available:,} requests (ALMANAC_RESERVE).")
        if record["prices"][record["by"]] > available:
            people.print("This is not enough. The backfill resumes after the quota resets.")


def _allow(requests: int, most: int | None, *, yes: bool, can_ask: bool) -> None:
    if most is not None and requests > most:
        text = f"it takes {requests:,} requests, and --max-requests allows {most:,}. Not started."
        fail(text, code=EXIT_USAGE)
    if yes or requests == 0:
        return
    if not can_ask:
        fail("Not started; pass --yes to confirm", code=EXIT_USAGE)
    if not typer.confirm("Start?", default=True):
        fail("Not started", code=EXIT_ERROR)


def _run(work: Backfill, by: Source) -> list[datetime]:
    found, total = list[datetime](), len(work.missing)
    with show_steps("Pulling"):
        for months in work.run(by):
            found += months
            progress.phase("months", len(found), total)
    return found


def _show(record: dict[str, Any]) -> None:
    months, resume_at = record["months"], record["resume_at"]
    span = f", {months[0]:%Y-%m} to {months[-1]:%Y-%m}" if months else ""
    people.print(
        f"{len(months)} months are complete{span}: {record['rows']:,} rows in {record['batches']} "
        f"batches, {record['requests']:,} requests, {record['versions']:,} new versions.",
        soft_wrap=True,
    )
    if resume_at is not None:
        when = f"at {resume_at:%Y-%m-%d %H:%M} UTC if the daemon runs (almanac ui)"
        text = f"Deferred: {record['deferred']}. It resumes {when}; else run the command again."
        people.print(text, markup=False, soft_wrap=True)
