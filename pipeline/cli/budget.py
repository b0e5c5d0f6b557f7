"""`almanac budget`: the poll plan with its reasons, and its cost until the reset.

It reads local state and sends no request; with `--from` it also shows the price of a backfill,
which takes one or two requests to count.
"""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almanac.reading.temporary import own_folder
from pipeline.cli.options import JsonOption, dates_option
from pipeline.console import EXIT_USAGE, Table, fail, people, print_json
from pipeline.home_location import locate_existing_home
from pipeline.polling.facts import PollFacts
from pipeline.polling.planner import PlannerInputs, PollPlan, ReceivedPush, plan_polls
from pipeline.session import open_service
from pipeline.settings import Settings, SettingsError, read_settings
from resources.backfill.state import BackfillStates
from resources.errors import CatalogError
from warehouse.clock import utc_now
from warehouse.files.storage import Storage
from warehouse.home import Home

if TYPE_CHECKING:
    from resources.backfill.backfill import Price


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
    if begin is not None and Home(settings.home).stamp() is None:
        _show_prices_alone(settings, begin, end, as_json=as_json)
        return
    home, now = locate_existing_home(), utc_now()
    prices = [] if begin is None else _prices(settings, home, begin, end)[1]
    inputs = PollFacts(settings, home).inputs(now)
    if inputs is None:
        fail("the plan is not known yet: run `almanac run`, or set ALMANAC_PLAN")
    plan = plan_polls(inputs)
    if as_json:
        print_json(_as_record(inputs, plan, prices))
        return
    _show_month(inputs, plan, settings)
    _show_schedule(plan)
    if prices:
        _show_prices(prices)


def _show_prices_alone(settings: Settings, begin: str, end: str | None, *, as_json: bool) -> None:
    """Show the prices before the first pull, from the service alone; no home is created."""
    home = Home(settings.home)
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
            states = BackfillStates(Storage(home.state), home.landing)
            return service.plan.name, Backfill(service, states, lower, upper).prices()
    except ValueError as error:
        fail(f"{error}. No request was sent.", code=EXIT_USAGE)
    except (CatalogError, SettingsError) as error:
        fail(str(error))


def _as_record(inputs: PlannerInputs, plan: PollPlan, prices: "list[Price]") -> dict[str, Any]:
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
        "month": asdict(inputs.month),
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


def _show_month(inputs: PlannerInputs, plan: PollPlan, settings: Settings) -> None:
    month = inputs.month
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    quota = "no limit" if month.quota is None else f"{month.quota:,}"
    days = month.days_left(inputs.now)
    table.add_row("plan", inputs.plan.name)
    table.add_row("monthly quota", quota)
    table.add_row("used", f"{month.used:,}")
    table.add_row("resets at", f"{month.resets_at:%Y-%m-%d %H:%M} UTC, in {days:.1f} days")
    table.add_row("reserved for daily pulls", f"{month.reserve:,} (ALMANAC_RESERVE)")
    table.add_row("daily pulls until then", f"{month.for_daily(inputs.now):,}")
    table.add_row("polls", f"{plan.per_day:,.0f} a day, as scheduled below")
    if plan.projected_at_reset is not None:
        table.add_row("projected use at reset", f"{plan.projected_at_reset:,} by this plan")
        table.add_row("spare", f"{plan.spare or 0:,}, for backfills or more polls")
    if inputs.push is not None and inputs.plan.webhooks:
        table.add_row("push", _push_text(inputs.push, is_on=inputs.push_is_on))
    if settings.polls_quota is not None:
        table.add_row("limit for polls", f"{settings.polls_quota:,} a month (ALMANAC_POLLS_QUOTA)")
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


def _show_prices(prices: "list[Price]") -> None:
    table = Table("Backfill by", "Requests", "Events", "About", "Left after", "Affordable")
    for price in prices:
        after = "no limit" if price.left_after is None else f"{price.left_after:,}"
        rows = "?" if price.rows is None else f"{price.rows:,}"
        table.add_row(
            *(price.by, f"{price.requests:,}", rows, f"{price.seconds:,.0f} s", after),
            "yes" if price.affordable else "not this month",
        )
    people.print(table)


def _span(interval: timedelta) -> str:
    minutes = interval.total_seconds() / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"
