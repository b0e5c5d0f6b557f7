"""`almanac budget`: the table of poll intervals, its cost until the reset, and the reset.

It reads local state and sends no request.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from almanac.console import JsonOption, Table, fail, people
from almanac.core.timestamps import utc_now
from application.console import print_json
from pipeline.home_location import locate_existing_home
from pipeline.polls import PollInputs, PollPlan, plan_polls, read_poll_inputs
from pipeline.settings import read_settings


def budget(as_json: JsonOption = False) -> None:
    """Show how often Almanac polls, the cost until the quota resets, and the reset."""
    settings, home, now = read_settings(), locate_existing_home(), utc_now()
    inputs = read_poll_inputs(settings, home, now)
    if inputs is None:
        fail("the plan is not known yet: run `almanac run`, or set ALMANAC_PLAN")
    plan = plan_polls(inputs)
    # Plans are made by the service's clock; the reset is shown by the machine's, as in `status`.
    resets_at = inputs.month.resets_at - (inputs.now - now)
    if as_json:
        print_json(_as_record(inputs, plan, resets_at))
        return
    _show(inputs, plan, resets_at)


def _as_record(inputs: PollInputs, plan: PollPlan, resets_at: datetime) -> dict[str, Any]:
    days = (inputs.month.resets_at - inputs.now) / timedelta(days=1)
    rows = [
        {
            "name": row.name,
            "window": None if row.window is None else str(row.window),
            "interval_s": round(row.interval.total_seconds()) if row.per_day else None,
            "requests": row.requests,
            "requests_per_day": round(row.per_day, 2),
            "until_reset": round(row.per_day * days),
            "due_at": row.due_at if row.per_day else None,
        }
        for row in plan.rows
    ]
    return {
        "plan": inputs.plan.name,
        "month": {**asdict(inputs.month), "resets_at": resets_at},
        "push_until": inputs.push_until,
        "push_is_on": inputs.push_is_on,
        "factor": plan.factor,
        "until_reset": _count_polls(inputs, plan),
        "projected_at_reset": _project_use(inputs, plan),
        "due_now": plan.requests,
        "next_at": plan.next_at,
        "schedule": rows,
    }


def _show(inputs: PollInputs, plan: PollPlan, resets_at: datetime) -> None:
    month, days = inputs.month, (inputs.month.resets_at - inputs.now) / timedelta(days=1)
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("plan", inputs.plan.name)
    facts.add_row("monthly quota", "no limit" if month.quota is None else f"{month.quota:,}")
    facts.add_row("used", f"{month.used:,}")
    facts.add_row("resets at", f"{resets_at:%Y-%m-%d %H:%M} UTC, in {days:.1f} days")
    facts.add_row("reserved for daily pulls", f"{month.reserve:,} (ALMANAC_RESERVE)")
    facts.add_row("daily pulls until then", f"{month.for_daily(inputs.now):,}")
    facts.add_row("polls until then", f"{_count_polls(inputs, plan):,}")
    if month.quota is not None:
        facts.add_row("projected use at reset", f"{_project_use(inputs, plan):,}")
    people.print(facts)
    table = Table("Poll of", "Event dates", "Every", "Requests", "A day", "Until the reset")
    for row in plan.rows:
        table.add_row(
            row.name,
            "" if row.window is None else str(row.window),
            _span(row.interval) if row.per_day else "daily pull",
            f"{row.requests:,}",
            f"{row.per_day:,.0f}",
            f"{row.per_day * days:,.0f}",
        )
    people.print(table)
    for line in _explain(inputs, plan):
        people.print(line, soft_wrap=True)


def _count_polls(inputs: PollInputs, plan: PollPlan) -> int:
    """Return the expected requests of polls until the reset."""
    days = (inputs.month.resets_at - inputs.now) / timedelta(days=1)
    sent = sum(row.per_day for row in plan.rows) * days
    return int(min(sent, inputs.month.for_polls(inputs.now))) if plan.factor else 0


def _project_use(inputs: PollInputs, plan: PollPlan) -> int:
    return inputs.month.used + inputs.month.for_daily(inputs.now) + _count_polls(inputs, plan)


def _explain(inputs: PollInputs, plan: PollPlan) -> list[str]:
    if plan.factor is None:
        return ["Nothing is left for polls until the reset."]
    lines = []
    if inputs.push_is_on:
        at_least = f"intervals are at least {_span(inputs.push_interval)}"
        lines.append(f"Push is received: {at_least} (ALMANAC_PUSH_POLL_INTERVAL_S).")
    elif inputs.push_until is not None:
        lines.append(f"Push is silent since {inputs.push_until:%Y-%m-%d %H:%M} UTC: polls go on.")
    if plan.factor > 1:
        lines.append(f"The budget stretches all intervals by {plan.factor:.2f}.")
    due = "" if not plan.requests else f"{plan.requests:,} requests are due now. "
    return [*lines, f"{due}The next poll is due at {plan.next_at:%Y-%m-%d %H:%M} UTC."]


def _span(interval: timedelta) -> str:
    minutes = interval.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
