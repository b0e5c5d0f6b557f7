"""The poll planner: the windows, cancellations and missing events that are due now.

A pure function from inputs to a plan: no clock, no file, no request. The budget of the month is
spread evenly up to its reset, and divided so that changes are seen as early as possible
(intervals.py), over windows that fill their pages (windows.py).
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from math import exp, floor, inf, log
from typing import Final

from pipeline.polling.intervals import (
    PollDemand,
    PollUnit,
    demand_of,
    polls_per_day,
    unit_of,
    without_fresh_edges,
)
from pipeline.polling.plan import (
    CancellationsPull,
    EventsPull,
    LookUps,
    PlannerInputs,
    PollPlan,
    Pull,
    ScheduleRow,
)
from pipeline.polling.rates import ChangeRates
from pipeline.polling.windows import Calendar, Partitioning, cuts, joined
from resources.ingest.scopes import PollWindow

PAST_DAYS: Final = 30
"""How far back polls pull at most; older events change too rarely."""
LOOK_UP_SHARE: Final = 0.03
"""The share of a day's budget for look-ups of missing events."""
SINCE_MARGIN: Final = timedelta(minutes=5)
"""The overlap of two pulls of cancellations, beside the service's own delay."""
NO_WORSE: Final = 1.001
"""Ages up to this factor count as equal; then the cheaper schedule is used."""
BUDGET_STEP: Final = 0.005
CUT_STEP: Final = 0.25
"""Budgets this close to each other, as a share, have one schedule and one way to cut."""
_DAY: Final = timedelta(days=1)


def plan_polls(inputs: PlannerInputs) -> PollPlan:
    """Return the pulls that are due now, and the schedule."""
    now, month = inputs.now, inputs.month.at(inputs.now)
    budget, days = month.for_polls(now), month.days_left(now)
    look_ups = _look_ups(inputs, budget, days)
    budget -= look_ups.requests
    units = _units(inputs, budget / days)
    due = _affordable(units, inputs, budget)
    per_day = float(sum(unit.demand.cost(unit.polls) for unit in units))
    projected = month.used + month.for_daily(now) + look_ups.requests
    projected += floor(min(budget, per_day * days))
    quota, next_at = month.quota, min(unit.next_at(now) for unit in units)
    return PollPlan(
        due=(*((look_ups,) if look_ups.requests else ()), *due),
        next_at=month.resets_at if budget < 1 else min(next_at, month.resets_at),
        schedule=tuple(row for unit in units for row in _rows(unit, inputs, budget)),
        per_day=per_day,
        projected_at_reset=None if quota is None else projected,
        spare=None if quota is None else max(0, quota - month.reserve - projected),
    )


def _look_ups(inputs: PlannerInputs, budget: float, days: float) -> LookUps:
    """Return the look-ups; none on a plan with a horizon, where a 404 proves nothing."""
    if inputs.plan.horizon_days is not None or budget < 1:
        return LookUps(())
    share = max(1.0, min(LOOK_UP_SHARE * budget / max(days, 1.0), 1e6)) - inputs.looked_up_today
    count = int(max(0.0, min(share, budget)))
    return LookUps(tuple(inputs.missing[:count]))


def _units(inputs: PlannerInputs, per_day: float) -> list[PollUnit]:
    partitioning, polls = _schedule(
        inputs.calendar,
        inputs.rates,
        _polled(inputs),
        inputs.now.date(),
        _rounded(per_day, BUDGET_STEP),
        _a_day(inputs.least()) - 1,
    )
    return [unit_of(*pair, inputs) for pair in zip((*partitioning, None), polls, strict=True)]


@lru_cache(maxsize=8)
def _schedule(
    calendar: Calendar,
    rates: ChangeRates,
    shown: PollWindow,
    today: date,
    per_day: float,
    pulls_max: float,
) -> tuple[Partitioning, tuple[int, ...]]:
    """Return the best way to cut, and the polls a day of each part; the cancellations are last."""
    tried = []
    for partitioning in cuts(calendar, rates, shown, today, _rounded(per_day, CUT_STEP)):
        demands = [*map(demand_of, partitioning), PollDemand(rates.cancelled, 1)]
        polls = polls_per_day(demands, per_day, pulls_max)
        if polls is not None:
            pairs = list(zip(demands, polls, strict=True))
            age = sum(pair.age(count) for pair, count in pairs)
            tried.append(
                (age, sum(trial.cost(count) for trial, count in pairs), partitioning, polls)
            )
    least = min(age for age, *_ in tried)
    _, _, partitioning, polls = min(
        (trial for trial in tried if trial[0] <= least * NO_WORSE), key=lambda trial: trial[1]
    )
    return partitioning, polls


def _polled(inputs: PlannerInputs) -> PollWindow:
    """Return the event dates that polls cover: those that the plan shows, without the far past."""
    today, plan = inputs.now.date(), inputs.plan
    past = PAST_DAYS if plan.past_days is None else min(plan.past_days, PAST_DAYS)
    horizon = plan.horizon_days
    return PollWindow(
        today - timedelta(days=past), None if horizon is None else today + timedelta(days=horizon)
    )


def _affordable(units: Sequence[PollUnit], inputs: PlannerInputs, budget: float) -> list[Pull]:
    """Return the due pulls that the budget allows; neighbouring windows become one pull."""
    now = inputs.now
    due = [
        without_fresh_edges(load, inputs) for unit in units if (load := unit.due(now)) is not None
    ]
    pulls: list[Pull] = []
    if units[-1].due_at <= now:
        pulls.append(CancellationsPull(_since(inputs)))
    for at, load in enumerate(due):
        if at and due[at - 1].window.last == load.window.first - _DAY:
            load = due[at] = joined(due[at - 1], load)
            pulls.pop()
        pulls.append(EventsPull(load.window, load.pages))
    paid: list[Pull] = []
    for pull in pulls:
        # A window may have grown by a page since it was counted.
        cost = pull.requests + (1 if isinstance(pull, EventsPull) else 0)
        if cost <= budget:
            paid.append(pull)
            budget -= cost
    return paid


def _since(inputs: PlannerInputs) -> datetime | None:
    pulled_at = inputs.cancellations_pulled_at
    if pulled_at is None:
        return None
    return pulled_at - timedelta(seconds=inputs.plan.freshness_s) - SINCE_MARGIN


def _rows(unit: PollUnit, inputs: PlannerInputs, budget: float) -> list[ScheduleRow]:
    """Return a row for the unit, and before it one for its core."""
    demand, polls, why = unit.demand, unit.polls, _why(unit, inputs, budget)
    if unit.window_plan is None:
        return [ScheduleRow(None, unit.interval, float(polls), demand.changes_per_day, why)]
    whole, core = unit.window_plan.whole, unit.window_plan.core
    own = ScheduleRow(
        whole.window, unit.interval, float(polls * whole.pages), whole.changes_per_day, why
    )
    if core is None:
        return [own]
    between = float((polls + 1) * core.pages)
    reason = "changes most: pulled once more between two pulls of the dates around it"
    return [ScheduleRow(core.window, unit.interval / 2, between, core.changes_per_day, reason), own]


def _why(unit: PollUnit, inputs: PlannerInputs, budget: float) -> str:
    if budget < 1:
        return "nothing left for polls until the reset"
    if inputs.push_is_on:
        rest = "polls find" if unit.polls else "the daily job finds"
        return f"push brings the changes; {rest} what it does not, such as withdrawals"
    if inputs.push_is_silent:
        return f"push is silent; {_why_without_push(unit, inputs)}"
    return _why_without_push(unit, inputs)


def _why_without_push(unit: PollUnit, inputs: PlannerInputs) -> str:
    demand, a_day = unit.demand, _a_day(inputs.least())
    if a_day < 2:
        return "the service shows changes a day late; the daily job is enough"
    if unit.polls >= demand.polls_max(a_day - 1):
        reason = (
            "as often as allowed" if unit.interval <= inputs.least() * 2.2 else "as often as useful"
        )
    else:
        reason = "as the budget allows" if unit.polls else "left to the daily job"
    requests = f"{demand.price} request{'s' if demand.price > 1 else ''} a pull"
    return f"{reason}: {demand.changes_per_day:.1f} changes a day, {requests}"


def _a_day(interval: timedelta) -> float:
    return _DAY / interval if interval else inf


def _rounded(per_day: float, step: float) -> float:
    """Return a budget rounded down, so that similar budgets have one schedule."""
    if per_day <= 0 or per_day == inf:
        return max(0.0, per_day)
    return exp(floor(log(per_day) / step) * step)
