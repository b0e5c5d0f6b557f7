"""What a look would have shown: its scope, narrowed by the plan's window and coverage.

Absence tells something only within this reach (interface 8.3). Bounds are inclusive, aware UTC.
"""

from dataclasses import dataclass
from datetime import datetime

from catalog.contract.plans import Plan
from catalog.contract.windows import plan_window
from warehouse.batches import Manifest
from warehouse.fields import plan_named


@dataclass(frozen=True, slots=True)
class Reach:
    """The dates, coins and categories in which a look shows every event. None is no bound."""

    plan: Plan
    lower: datetime
    upper: datetime | None
    coins: tuple[str, ...] | None
    categories: tuple[str, ...] | None

    @property
    def covers_all_coins(self) -> bool:
        return self.plan.coverage_top is None


def reach_of(manifest: Manifest) -> Reach:
    """Return the reach of an events or export look.

    A plan's window moves at midnight, and content is older than the answer: only what lies in
    the windows of both instants is sure to have been shown.
    """
    plan, scope = plan_named(manifest.plan), manifest.scope
    windows = [plan_window(plan, at) for at in (manifest.content_at, manifest.observed_at)]
    lowers = [window.lower for window in windows]
    uppers = [window.upper for window in windows if window.upper is not None]
    if scope.lower is not None:
        lowers.append(scope.lower)
    if scope.upper is not None:
        uppers.append(scope.upper)
    return Reach(plan, max(lowers), min(uppers, default=None), scope.coins, scope.categories)


def proves_withdrawal(plan: Plan) -> bool:
    """Whether a 404 of an event within the window means that it was withdrawn.

    Not where events beyond a horizon, or without a top coin, are 404 as well: it may have moved.
    """
    return plan.horizon_days is None and plan.coverage_top is None
