"""`almanac backfill`: all events of a range of event dates, with the price first.

Exit codes: 0 also when the quota runs out before the end (received rows are landed, and it resumes
by itself or with the same command); 1 for an error or a "no"; 2 for arguments that can't be used;
130 after Ctrl-C.
"""

import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline.cli.options import JsonOption, dates_option
from pipeline.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Table,
    fail,
    people,
    print_json,
    progress,
    show_problems,
    warnings,
)
from pipeline.home_location import locate_home
from pipeline.session import open_service
from pipeline.settings import SettingsError, read_settings
from resources.backfill.state import BackfillStates, Source
from resources.errors import CatalogError, Defer
from resources.ingest.scopes import month_key
from warehouse.batch_problems import BatchProblem
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home

if TYPE_CHECKING:
    from resources.backfill.backfill import Backfill, Price


@dataclass(slots=True)
class _BackfillSummary:
    """The result of a backfill, as `--json` prints it."""

    prices: "list[Price]"
    by: Source
    resumed: bool
    months: list[str] = field(default_factory=list)
    rows: int = 0
    requests: int = 0
    batches: int = 0
    notes: list[str] = field(default_factory=list)
    deferred: str = ""
    resume_at: datetime | None = None
    versions: int = 0
    problems: list[BatchProblem] = field(default_factory=list)
    seconds: float = 0.0


def backfill(
    begin: Annotated[str, typer.Option("--from", help="First event date, e.g. 2017-01-01.")],
    end: Annotated[
        str | None, typer.Option("--to", help="Last event date; by default two years ahead.")
    ] = None,
    source: Annotated[
        Literal["auto", "list", "export"],
        typer.Option(
            help="Pull from the list or the export; auto takes the faster one, or the one with "
            "fewer requests if the other takes much of the quota."
        ),
    ] = "auto",
    max_requests: Annotated[
        int | None, typer.Option(min=1, help="Do not start if it takes more requests.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pull all events in a range of event dates, month by month, and merge them.

    The price is shown first. If interrupted, run the command again to resume.
    """
    # Imported here, so that a wrong option is reported before the HTTP library is imported.
    lower, upper = dates_option(begin, end)
    from resources.backfill.backfill import Backfill, choose_price

    settings = read_settings()
    home = locate_home(settings)
    began = monotonic()
    try:
        with open_service(settings, work="backfill") as service:
            states = BackfillStates(Storage(home.state), home.landing)
            work = Backfill(service, states, lower, upper)
            prices = work.prices()
            price = choose_price(prices, source)
            if price is None:
                fail(
                    "the plan has no export. Not started; use --source list.",
                    code=EXIT_USAGE,
                )
            if not as_json:
                _show_prices(work, prices, price)
            _allow(price, max_requests, yes=yes, as_json=as_json)
            summary = _run(work, prices, price, quiet=as_json)
        report = merge(home)
        summary.versions = sum(outcome.versions for outcome in report.outcomes)
        summary.problems = report.problems
    except Defer as error:
        fail(f"Not started: {error}", code=0)
    except ValueError as error:
        fail(f"{error}. No request was sent.", code=EXIT_USAGE)
    except (CatalogError, WarehouseError, SettingsError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        warnings.print(
            "Interrupted. Complete pages are landed, and `almanac merge` merges them. Run the "
            "command again to resume."
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    summary.months.sort()
    summary.seconds = round(monotonic() - began, 1)
    if as_json:
        print_json({**asdict(summary), "prices": [price.as_record() for price in summary.prices]})
    else:
        _show(summary, home)


def _allow(price: "Price", max_requests: int | None, *, yes: bool, as_json: bool) -> None:
    if max_requests is not None and price.requests > max_requests:
        fail(
            f"it takes {price.requests:,} requests, and --max-requests allows {max_requests:,}. "
            "Not started.",
            code=EXIT_USAGE,
        )
    if yes or price.requests == 0:
        return
    if as_json or not sys.stdin.isatty():
        fail("Not started; pass --yes to confirm", code=EXIT_USAGE)
    if not typer.confirm("Start?", default=True):
        fail("Not started", code=EXIT_ERROR)


def _run(
    work: "Backfill", prices: "list[Price]", price: "Price", *, quiet: bool
) -> _BackfillSummary:
    summary = _BackfillSummary(prices, price.by, work.resumed)
    with progress("{task.completed:,} of {task.total:,} rows", quiet=quiet) as bar:
        task = bar.add_task("", total=price.rows or 1)
        for months in work.run(price.by):
            summary.months += [month_key(month) for month in months]
            bar.update(task, completed=work.rows, description=summary.months[-1][:7])
    summary.rows, summary.requests = work.rows, work.requests
    summary.batches, summary.notes = len(work.manifests), list(dict.fromkeys(work.notes))
    if work.deferred is not None:
        summary.deferred, summary.resume_at = work.deferred.happened, work.deferred.resume_at
    return summary


def _show_prices(work: "Backfill", prices: "list[Price]", chosen: "Price") -> None:
    if work.resumed:
        people.print("Resuming an interrupted backfill; the price is for the rest.")
    table = Table(
        "", "Requests", "Events", "About", "Left this month", "After", "Reserved for daily"
    )
    for price in prices:
        mark = f"{price.by} *" if price is chosen else price.by
        table.add_row(
            *(mark, f"{price.requests:,}", "?" if price.rows is None else f"{price.rows:,}"),
            *(f"{price.seconds:,.0f} s", _number(price.left), _number(price.left_after)),
            f"{price.kept:,}",
        )
    people.print(table)
    for note in work.notes:
        people.print(f"Note: {note}", soft_wrap=True)
    if not chosen.affordable:
        people.print(
            f"Only {_number(chosen.available)} of them can be sent this month (reserve, "
            "ALMANAC_BACKFILL_QUOTA, ALMANAC_MONTHLY_QUOTA). The rest resumes after the reset.",
            soft_wrap=True,
        )


def _number(value: int | None) -> str:
    return "no limit" if value is None else f"{value:,}"


def _show(summary: _BackfillSummary, home: Home) -> None:
    months = summary.months
    span = "none" if not months else f"{len(months)}, {min(months)[:7]} to {max(months)[:7]}"
    lines: list[tuple[str, Any]] = [
        ("complete months", span),
        ("rows", f"{summary.rows:,} in {summary.batches} batches"),
        ("new versions", f"{summary.versions:,}"),
        ("requests", f"{summary.requests:,}"),
        ("seconds", f"{summary.seconds:.1f}"),
        ("warehouse", str(home.warehouse)),
    ]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in lines:
        table.add_row(name, value)
    people.print(table)
    show_problems(summary.problems)
    for note in summary.notes:
        people.print(f"Note: {note}", soft_wrap=True)
    if summary.resume_at is not None:
        at = summary.resume_at.astimezone(UTC)
        people.print(
            f"Deferred: {summary.deferred}. It resumes at {at:%Y-%m-%d %H:%M} UTC if the daemon "
            "runs (almanac ui); otherwise run the command again.",
            markup=False,
            soft_wrap=True,
        )
