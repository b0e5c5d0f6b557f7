"""The true changes in a month of the events that a plan shows: the sandbox's world, flattened.

Belongs here: the steps of a month. Does not: pulls (month.py). Times are seconds from the month's
start; dates are days from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from catalog.contract.plans import ImpactView, Plan, impact_band
from catalog.sandbox.world.truth import TrueEvent, Version
from catalog.sandbox.world.world import World

DAY_S = 86_400
BACK = 100
"""Dates start this many days before the month."""
DATES = BACK + 900
Span = tuple[int, int]
"""First and last date of an event."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one event. `before` and `after` are its dates while scheduled, else None.

    `visible` is whether the plan shows the difference; `fresh` marks an event that was never
    scheduled before, `cancelled` one that the cancellations list.
    """

    at: float
    event_id: str
    before: Span | None
    after: Span | None
    visible: bool
    fresh: bool
    cancelled: bool


@dataclass(frozen=True, eq=False)
class TrueMonth:
    """A plan's month: the dates of events at its start, and all steps until its end."""

    plan: Plan
    starts: datetime
    ends_s: float
    spans: dict[str, Span]
    steps: Sequence[Step]

    def shown(self, today: int) -> Span:
        """Return the first and last date that the plan's list shows on a day."""
        past, horizon = self.plan.past_days, self.plan.horizon_days
        first = today - (BACK if past is None else past)
        return first, DATES - BACK - 1 if horizon is None else today + horizon

    def instant(self, at: float) -> datetime:
        return self.starts + timedelta(seconds=at)

    def date_of(self, day: int) -> date:
        return (self.starts + timedelta(days=day)).date()

    def day_of(self, date_: date) -> int:
        return (date_ - self.starts.date()).days


def true_month(world: World, plan: Plan, starts: datetime) -> TrueMonth:
    """Return a calendar month of a world as a plan can show it."""
    ends = (starts + timedelta(days=32)).replace(day=1)
    spans = {
        event_id: _span(event, starts)
        for event_id, event in world.events_at(starts).items()
        if _span(event, starts)[1] >= -BACK
    }
    steps = []
    for change in world.changes(starts, ends):
        history = world.history(change.event_id, change.at)
        before = history[-2] if len(history) > 1 else None
        step = _step(change.event_id, before, history[-1], plan, starts)
        if step is not None:
            steps.append(step)
    return TrueMonth(plan, starts, (ends - starts).total_seconds(), spans, steps)


def _step(
    event_id: str, before: Version | None, after: Version, plan: Plan, starts: datetime
) -> Step | None:
    was = before is not None and before.status == "scheduled"
    is_ = after.status == "scheduled"
    old = _span(before.event, starts) if was and before is not None else None
    new = _span(after.event, starts) if is_ else None
    last = _span(after.event, starts)
    if max(bounds[1] for bounds in (old, new, last) if bounds is not None) < -BACK:
        return None
    visible = was != is_ or before is None
    if was and is_ and before is not None:
        visible = _shown(before.event, plan) != _shown(after.event, plan)
    return Step(
        at=(after.known_from - starts).total_seconds(),
        event_id=event_id,
        before=old,
        after=new,
        visible=visible,
        fresh=before is None,
        cancelled=after.status == "cancelled",
    )


def _span(event: TrueEvent, starts: datetime) -> Span:
    first = (event.date.date() - starts.date()).days
    last = first if event.date_end is None else (event.date_end.date() - starts.date()).days
    return first, max(first, last)


def _shown(event: TrueEvent, plan: Plan) -> tuple[object, ...]:
    """Return the fields that make a version, as the plan shows them."""
    dated = (event.displayed_date, event.date, event.date_end, event.date_type, event.is_estimated)
    fields: tuple[object, ...] = (event.slug, event.title, *dated, frozenset(event.coins))
    if plan.shows("categories"):
        fields += (frozenset(event.categories), event.description)
    if plan.shows("sourceUrl"):
        fields += (event.impact_summary, event.source_url, event.snapshot_url)
    if plan.impact is ImpactView.BANDED and event.impact is not None:
        fields += (impact_band(event.impact),)
    if plan.impact is ImpactView.PRECISE:
        fields += (event.impact,)
    return fields


def month_starts(year: int, months: Sequence[int]) -> list[datetime]:
    return [datetime(year, month, 1, tzinfo=UTC) for month in months]
