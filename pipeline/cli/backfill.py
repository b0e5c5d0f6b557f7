"""`almanac budget` and `almanac backfill`: the poll plan and its cost, the price of a backfill, and
the backfill.

`budget` reads local state and sends no request; with `--from` it sends one or two, to count.
`backfill` exits with 0 also when the quota runs out before the end: received rows are landed, and
it resumes automatically, or with the same command.
"""

import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from almanac.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    JsonOption,
    Table,
    fail,
    people,
    show_steps,
    warnings,
)
from almanac.reading.temporary import own_folder
from pipeline.cli.options import dates_option
from pipeline.console import print_json, progress, show_phases, show_problems
from pipeline.home_location import locate_existing_home, locate_home
from pipeline.polling.facts import PollFacts
from pipeline.polling.planner import PlannerInputs, PollPlan, ReceivedPush, plan_polls
from pipeline.session import open_service
from pipeline.settings import Settings, SettingsError, read_settings
from resources.backfill.state import BackfillStates, Source
from resources.errors import CatalogError, Defer
from resources.ingest.scopes import month_key
from warehouse.batch_problems import BatchProblem
from warehouse.clock import utc_now
from warehouse.errors import WarehouseError
from warehouse.history.merge import merge
from warehouse.home import Home

if TYPE_CHECKING:
    from resources.backfill.backfill import Backfill, Price


def budget(
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Show the price of a backfill from this event date on."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Its last event date; by default two years ahead.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the poll plan, its cost until the quota resets, and the price of a backfill."""
    if begin is None and end is not None:
        fail("--to needs --from. No request was sent.", code=EXIT_USAGE)
    settings = read_settings()
    if begin is not None and locate_home(settings).stamp() is None:
        _show_prices_alone(settings, begin, end, as_json=as_json)
        return
    home, now = locate_existing_home(), utc_now()
    prices = [] if begin is None else _prices(settings, home, begin, end)[1]
    inputs = PollFacts(settings, home).inputs(now)
    if inputs is None:
        fail("the plan is not known yet: run `almanac run`, or set ALMANAC_PLAN")
    plan = plan_polls(inputs)
    # Plans are made by the service's clock; the reset is shown by the machine's, as in `status`.
    resets_at = inputs.month.resets_at - (inputs.now - now)
    if as_json:
        print_json(_as_record(inputs, plan, prices, resets_at))
        return
    _show_month(inputs, plan, settings, resets_at)
    _show_schedule(plan)
    if prices:
        _show_prices(prices)


def _show_prices_alone(settings: Settings, begin: str, end: str | None, *, as_json: bool) -> None:
    """Show the prices before the first pull, from the service alone; no home is created."""
    home = locate_home(settings)
    with TemporaryDirectory(prefix="budget-", dir=own_folder()) as folder:
        plan, prices = _prices(settings, home, begin, end, probe_state=Path(folder))
    if as_json:
        records = [price.as_record() for price in prices]
        print_json({"plan": plan, "month": None, "schedule": [], "backfill": records})
        return
    people.print(f"There is no home at {home.root} yet; for the plan {plan}:", soft_wrap=True)
    _show_prices(prices)


def _prices(
    settings: Settings,
    home: Home,
    begin: str,
    end: str | None,
    *,
    probe_state: Path | None = None,
) -> "tuple[str, list[Price]]":
    """Return the plan's name, and the price by list and by export."""
    # Imported here, since only a price needs the HTTP library.
    from resources.backfill.backfill import Backfill

    lower, upper = dates_option(begin, end)
    try:
        with open_service(settings, work="backfill", probe_state=probe_state) as service:
            states = BackfillStates(home.state_storage, home.landing)
            return service.plan.name, Backfill(service, states, lower, upper).prices()
    except ValueError as error:
        fail(f"{error}. No request was sent.", code=EXIT_USAGE)
    except (CatalogError, SettingsError) as error:
        fail(str(error))


def _as_record(
    inputs: PlannerInputs, plan: PollPlan, prices: "list[Price]", resets_at: datetime
) -> dict[str, Any]:
    schedule = [
        {
            "unit": row.unit,
            "interval_s": round(row.interval.total_seconds()),
            "requests_per_day": round(row.requests_per_day, 2),
            "changes_per_day": round(row.changes_per_day, 2),
            "why": row.why,
        }
        for row in plan.schedule
    ]
    return {
        "plan": inputs.plan.name,
        "month": {**asdict(inputs.month), "resets_at": resets_at},
        "push": _push_record(inputs),
        "polls_per_day": round(plan.per_day, 2),
        "projected_at_reset": plan.projected_at_reset,
        "spare": plan.spare,
        "next_at": plan.next_at,
        "due_now": sum(pull.requests for pull in plan.due),
        "schedule": schedule,
        "backfill": [price.as_record() for price in prices],
    }


def _push_record(inputs: PlannerInputs) -> dict[str, Any] | None:
    push = inputs.push
    if push is None or not inputs.plan.webhooks:
        return None
    return {
        "is_on": inputs.push_is_on,
        "last_at": push.last_at,
        "silent_after_s": round(push.silent_after.total_seconds()),
        "poll_interval_s": round(push.poll_interval.total_seconds()),
    }


def _push_text(push: ReceivedPush, *, is_on: bool) -> str:
    if is_on:
        return (
            f"received, last at {push.last_at:%Y-%m-%d %H:%M} UTC; polls of the same dates at "
            f"least {_span(push.poll_interval)} apart (ALMANAC_PUSH_POLL_INTERVAL_S)"
        )
    return (
        f"silent since {push.last_at:%Y-%m-%d %H:%M} UTC, over {_span(push.silent_after)} "
        "(ALMANAC_PUSH_SILENCE_H); polls as without push"
    )


def _show_month(
    inputs: PlannerInputs, plan: PollPlan, settings: Settings, resets_at: datetime
) -> None:
    month = inputs.month
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    quota = "no limit" if month.quota is None else f"{month.quota:,}"
    days = month.days_left(inputs.now)
    table.add_row("plan", inputs.plan.name)
    table.add_row("monthly quota", quota)
    table.add_row("used", f"{month.used:,}")
    table.add_row("resets at", f"{resets_at:%Y-%m-%d %H:%M} UTC, in {days:.1f} days")
    table.add_row("reserved for daily pulls", f"{month.reserve:,} (ALMANAC_RESERVE)")
    table.add_row("daily pulls until then", f"{month.for_daily(inputs.now):,}")
    table.add_row("polls", f"{plan.per_day:,.0f} a day, as scheduled below")
    if plan.projected_at_reset is not None:
        table.add_row("projected use at reset", f"{plan.projected_at_reset:,} by this plan")
        table.add_row("spare", f"{plan.spare or 0:,}, for backfills or more polls")
    if inputs.push is not None and inputs.plan.webhooks:
        table.add_row("push", _push_text(inputs.push, is_on=inputs.push_is_on))
    people.print(table)


def _show_schedule(plan: PollPlan) -> None:
    table = Table("Event dates", "Every", "Requests a day", "Changes a day", "Why")
    for row in plan.schedule:
        table.add_row(
            *(row.unit, _span(row.interval), f"{row.requests_per_day:,.0f}"),
            *(f"{row.changes_per_day:,.1f}", row.why),
        )
    people.print(table)
    due = sum(pull.requests for pull in plan.due)
    count = "1 request is" if due == 1 else f"{due:,} requests are"
    now = f"{count} due now; after that the" if due else "The"
    people.print(f"{now} next pull is at {plan.next_at:%Y-%m-%d %H:%M} UTC.", soft_wrap=True)


def _show_prices(prices: "list[Price]", chosen: "Price | None" = None) -> None:
    table = Table(
        *("Backfill by", "Requests", "Events", "About"),
        *("Left this month", "Left after", "Reserved for daily"),
    )
    for price in prices:
        table.add_row(
            f"{price.by} *" if price is chosen else price.by,
            f"{price.requests:,}",
            "?" if price.rows is None else f"{price.rows:,}",
            f"{price.seconds:,.0f} s",
            _number(price.left),
            _number(price.left_after),
            f"{price.kept:,}",
        )
    people.print(table)
    for price in prices if chosen is None else [chosen]:
        if not price.affordable:
            people.print(
                f"By {price.by}, only {_number(price.available)} requests can be sent this month "
                "(reserve, ALMANAC_MONTHLY_QUOTA). The rest resumes after "
                "the reset.",
                soft_wrap=True,
            )


def _span(interval: timedelta) -> str:
    minutes = interval.total_seconds() / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"


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
            states = BackfillStates(home.state_storage, home.landing)
            work = Backfill(service, states, lower, upper)
            with show_steps("Counting events for the price ..."):
                prices = work.prices()
            price = choose_price(prices, source)
            if price is None:
                fail(
                    "the plan has no export. Not started; use --source list.",
                    code=EXIT_USAGE,
                )
            if not as_json:
                if work.resumed:
                    people.print("Resuming an interrupted backfill; the price is for the rest.")
                _show_prices(prices, price)
                for note in work.notes:
                    people.print(f"Note: {note}", soft_wrap=True)
            _allow(price, max_requests, yes=yes, as_json=as_json)
            summary = _run(work, prices, price, quiet=as_json)
        with show_phases("Merging"):
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
