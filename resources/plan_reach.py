"""Which part of a range of event dates a plan shows, and why not the rest."""

from datetime import date, datetime

from catalog.contract.plans import Plan
from catalog.contract.windows import Window, day_end
from resources.errors import PlanLacksAccess
from resources.pull_scopes import first_instant


def within_reach(
    lower: date, upper: date, *, plan: Plan, window: Window, partly: bool
) -> tuple[datetime, datetime, list[str]]:
    """Return the bounds of what is shown of a range of days, and what to say of the rest.

    Raises:
        PlanLacksAccess: nothing of it is shown, or not its beginning unless `partly`.
    """
    reach = window.lower.date()
    if upper < reach or (lower < reach and not partly):
        raise PlanLacksAccess(
            f"the plan {plan.name} shows events from {reach} on, and the range begins on {lower}",
            next_step=f"Begin on {reach} or later, or use a key of a higher plan",
        )
    horizon = None if window.upper is None else window.upper.date()
    if horizon is not None and lower > horizon:
        raise PlanLacksAccess(
            f"the plan {plan.name} shows events up to {horizon}, and the range begins on {lower}",
            next_step="Begin earlier, or use a key of a higher plan",
        )
    notes = []
    if lower < reach:
        notes.append(f"the plan {plan.name} shows nothing before {reach}")
    if horizon is not None and upper > horizon:
        notes.append(f"the plan {plan.name} shows nothing after {horizon}")
        upper = horizon
    return first_instant(max(lower, reach)), day_end(upper), notes
