"""What is worth a look now: the windows, cancellations and vanished events that are due.

Pure: what is known goes in, a plan comes out; no clock, no file, no request. The budget of the
month is spread evenly to its reset and divided so that changes are seen as young as it allows
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
    turns_a_day,
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
"""How far back polls look at most; what is older changes too rarely."""
LOOK_UP_SHARE: Final = 0.03
"""The share of a day's budget that confirming vanished events may take."""
SINCE_MARGIN: Final = timedelta(minutes=5)
"""How far cancellations are asked for again, beside the service's own delay."""
NO_WORSE: Final = 1.001
"""Ages this close are one; the cheaper schedule is taken."""
BUDGET_STEP: Final = 0.005
CUT_STEP: Final = 0.25
"""Budgets this close to each other, as a share, have one schedule, and one way to cut."""
_DAY: Final = timedelta(days=1)


def plan_polls(known: PlannerInputs) -> PollPlan:
    """Return what to look at now, and the schedule it follows from."""
    now, month = known.now, known.month.at(known.now)
    budget, days = month.for_polls(now), month.days_left(now)
    look_ups = _look_ups(known, budget, days)
    budget -= look_ups.requests
    units = _units(known, budget / days)
    due = _affordable(units, known, budget)
    per_day = float(sum(unit.demand.cost(unit.turns) for unit in units))
    projected = month.used + month.for_daily(now) + look_ups.requests
    projected += floor(min(budget, per_day * days))
    quota, next_at = month.quota, min(unit.next_at(now) for unit in units)
    return PollPlan(
        due=(*((look_ups,) if look_ups.requests else ()), *due),
        next_at=month.resets_at if budget < 1 else min(next_at, month.resets_at),
        schedule=tuple(row for unit in units for row in _rows(unit, known, budget)),
        per_day=per_day,
        projected_at_reset=None if quota is None else projected,
        spare=None if quota is None else max(0, quota - month.reserve - projected),
    )


def _look_ups(known: PlannerInputs, budget: float, days: float) -> LookUps:
    """Return whom to ask about by id: only where a 404 tells something, which a horizon forbids."""
    if known.plan.horizon_days is not None or budget < 1:
        return LookUps(())
    share = max(1.0, min(LOOK_UP_SHARE * budget / max(days, 1.0), 1e6)) - known.looked_up_today
    count = int(max(0.0, min(share, budget)))
    return LookUps(tuple(known.vanished[:count]))


def _units(known: PlannerInputs, per_day: float) -> list[PollUnit]:
    looks_max = 0.0 if known.webhooks else _a_day(known.least()) - 1
    cells, turns = _schedule(
        known.calendar,
        known.rates,
        _polled(known),
        known.now.date(),
        _rounded(per_day, BUDGET_STEP),
        looks_max,
    )
    return [unit_of(*load, known) for load in zip((*cells, None), turns, strict=True)]


@lru_cache(maxsize=8)
def _schedule(
    calendar: Calendar,
    rates: ChangeRates,
    shown: PollWindow,
    today: date,
    per_day: float,
    looks_max: float,
) -> tuple[Partitioning, tuple[int, ...]]:
    """Return the best way to cut, and the turns a day of each cell; the cancellations come last."""
    tried = []
    for cells in cuts(calendar, rates, shown, today, _rounded(per_day, CUT_STEP)):
        demands = [*map(demand_of, cells), PollDemand(rates.cancelled, 1)]
        turns = turns_a_day(demands, per_day, looks_max)
        if turns is not None:
            pairs = list(zip(demands, turns, strict=True))
            age = sum(pair.age(count) for pair, count in pairs)
            tried.append((age, sum(trial.cost(count) for trial, count in pairs), cells, turns))
    least = min(age for age, *_ in tried)
    _, _, cells, turns = min(
        (trial for trial in tried if trial[0] <= least * NO_WORSE), key=lambda trial: trial[1]
    )
    return cells, turns


def _polled(known: PlannerInputs) -> PollWindow:
    """Return the event dates that polls look at: what the plan shows, the far past left out."""
    today, plan = known.now.date(), known.plan
    past = PAST_DAYS if plan.past_days is None else min(plan.past_days, PAST_DAYS)
    horizon = plan.horizon_days
    return PollWindow(
        today - timedelta(days=past), None if horizon is None else today + timedelta(days=horizon)
    )


def _affordable(units: Sequence[PollUnit], known: PlannerInputs, budget: float) -> list[Pull]:
    """Return the pulls that the rest of the month can pay, neighbours as one."""
    now = known.now
    due = [without_fresh_edges(run, known) for unit in units if (run := unit.due(now)) is not None]
    pulls: list[Pull] = []
    if units[-1].due_at <= now:
        pulls.append(CancellationsPull(_since(known)))
    for at, run in enumerate(due):
        if at and due[at - 1].window.last == run.window.first - _DAY:
            run = due[at] = joined(due[at - 1], run)
            pulls.pop()
        pulls.append(EventsPull(run.window, run.pages))
    paid: list[Pull] = []
    for pull in pulls:
        # A window may have grown by a page since it was counted.
        most = pull.requests + (1 if isinstance(pull, EventsPull) else 0)
        if most <= budget:
            paid.append(pull)
            budget -= most
    return paid


def _since(known: PlannerInputs) -> datetime | None:
    looked_at = known.cancellations_looked_at
    if looked_at is None:
        return None
    return looked_at - timedelta(seconds=known.plan.freshness_s) - SINCE_MARGIN


def _rows(unit: PollUnit, known: PlannerInputs, budget: float) -> list[ScheduleRow]:
    """Return a row for what is looked at as one, and before it one for its core."""
    demand, turns, why = unit.demand, unit.turns, _why(unit, known, budget)
    if unit.cell is None:
        return [ScheduleRow(None, unit.interval, float(turns), demand.changes_per_day, why)]
    whole, core = unit.cell.whole, unit.cell.core
    own = ScheduleRow(
        whole.window, unit.interval, float(turns * whole.pages), whole.changes_per_day, why
    )
    if core is None:
        return [own]
    between = float((turns + 1) * core.pages)
    reason = "changes most: pulled once more between two pulls of the dates around it"
    return [ScheduleRow(core.window, unit.interval / 2, between, core.changes_per_day, reason), own]


def _why(unit: PollUnit, known: PlannerInputs, budget: float) -> str:
    demand, a_day = unit.demand, _a_day(known.least())
    if known.webhooks:
        return "webhooks deliver the changes; the daily job reconciles"
    if budget < 1:
        return "nothing left for polls until the reset"
    if a_day < 2:
        return "the service shows changes a day late; the daily job is enough"
    if unit.turns >= demand.most(a_day - 1):
        reason = (
            "as often as allowed" if unit.interval <= known.least() * 2.2 else "as often as useful"
        )
    else:
        reason = "as the budget allows" if unit.turns else "left to the daily job"
    requests = f"{demand.price} request{'s' if demand.price > 1 else ''} a pull"
    return f"{reason}: {demand.changes_per_day:.1f} changes a day, {requests}"


def _a_day(interval: timedelta) -> float:
    return _DAY / interval if interval else inf


def _rounded(per_day: float, step: float) -> float:
    """Return a budget rounded down, so that much alike ones have one schedule."""
    if per_day <= 0 or per_day == inf:
        return max(0.0, per_day)
    return exp(floor(log(per_day) / step) * step)
