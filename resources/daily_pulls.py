"""What a day's look at the catalog pulls, feed by feed, within what the plan shows.

The job of a day and the polls between share these. A plan that lacks a feed and a quota that
has run out are outcomes, not errors: what came is landed, and the rest goes on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from catalog.contract.plans import Plan
from resources.errors import Defer, PlanLacksAccess
from resources.landed import Landed
from resources.queries import Bound
from resources.service import Service
from warehouse.batches import Feed

NEAR_BEFORE_DAYS: Final = 1
NEAR_AFTER_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Pulled:
    """What became of a look at one feed. `nothing_because` is empty where something came."""

    feed: Feed
    landed: tuple[Landed, ...] = ()
    nothing_because: str = ""
    deferred: Defer | None = field(default=None, repr=False)

    @property
    def requests(self) -> int:
        return sum(one.requests for one in self.landed)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.landed)


def pull(feed: Feed, service: Service) -> Pulled:
    """Look at a feed and land what it has.

    Raises:
        CatalogError: neither the plan nor the quota is the reason.
    """
    if lacks(service.plan, feed):
        return Pulled(feed, nothing_because=f"not in the plan {service.plan.name}")
    service.resume_open()
    try:
        landed = _PULLS[feed](service)
    except PlanLacksAccess as error:
        return Pulled(feed, nothing_because=f"not in the plan {service.plan.name}: {error}")
    except Defer as error:
        return Pulled(feed, nothing_because=f"deferred: {error}", deferred=error)
    deferred = next((one.deferred for one in landed if one.deferred is not None), None)
    return Pulled(feed, tuple(landed), deferred=deferred)


def lacks(plan: Plan, feed: Feed) -> bool:
    """Whether a plan does not include a feed, by the contract's table."""
    shown = {"export": plan.export, "categories": plan.shows("categories")}
    return not shown.get(feed, True)


def _export(service: Service) -> list[Landed]:
    return service.puller().export(None, None, coins=service.coins, categories=service.categories)


def _events(service: Service) -> list[Landed]:
    """Pull the near days where the export brings the rest, else all that the plan shows."""
    window, today = service.window(), service.today()
    lower: Bound = window.lower.date()
    upper: Bound = None if window.upper is None else window.upper.date()
    if service.plan.export:
        lower = today - timedelta(days=NEAR_BEFORE_DAYS)
        upper = today + timedelta(days=NEAR_AFTER_DAYS)
    puller = service.puller()
    return [puller.events(lower, upper, coins=service.coins, categories=service.categories)]


_PULLS: Final[Mapping[Feed, Callable[[Service], list[Landed]]]] = {
    "export": _export,
    "events": _events,
    "cancellations": lambda service: [service.puller().cancellations()],
    "coins": lambda service: [service.puller().coins()],
    "categories": lambda service: [service.puller().categories()],
}
