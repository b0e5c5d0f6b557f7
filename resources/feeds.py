"""What a day's job and a poll pull, feed by feed, within what the plan shows.

A plan that lacks a feed and a quota that has run out are outcomes, not errors: what came is
landed, and the rest goes on. Belongs here: requesting what was planned, and landing it. Does not:
what a poll should request (pipeline/polling).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final

from catalog.contract.plans import Plan
from resources.errors import Defer, PlanLacksAccess
from resources.http.list_query import DateBound
from resources.ingest.context import Landed
from resources.session import CatalogSession
from warehouse.landing.batches import Feed

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


def pull(feed: Feed, service: CatalogSession) -> Pulled:
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


def _export(service: CatalogSession) -> list[Landed]:
    return service.puller().export(None, None, coins=service.coins, categories=service.categories)


def _events(service: CatalogSession) -> list[Landed]:
    """Pull the near days where the export brings the rest, else all that the plan shows."""
    window, today = service.window(), service.today()
    lower: DateBound = window.lower.date()
    upper: DateBound = None if window.upper is None else window.upper.date()
    if service.plan.export:
        lower = today - timedelta(days=NEAR_BEFORE_DAYS)
        upper = today + timedelta(days=NEAR_AFTER_DAYS)
    puller = service.puller()
    return [puller.events(lower, upper, coins=service.coins, categories=service.categories)]


_PULLS: Final[Mapping[Feed, Callable[[CatalogSession], list[Landed]]]] = {
    "export": _export,
    "events": _events,
    "cancellations": lambda service: [service.puller().cancellations()],
    "coins": lambda service: [service.puller().coins()],
    "categories": lambda service: [service.puller().categories()],
}


@dataclass(frozen=True, slots=True)
class Poll:
    """What to look at. A window is its first and last event date; None is the plan's end.

    `cancellations` says whether to look at them, `since` from when; None is as far as they are
    listed.
    """

    windows: tuple[tuple[date, date | None], ...] = ()
    cancellations: bool = False
    since: datetime | None = None
    event_ids: tuple[str, ...] = ()


def poll(service: CatalogSession, what: Poll) -> Iterator[Pulled]:
    """Land what is asked for, and tell feed by feed what came; it ends where the quota does.

    Raises:
        CatalogError: the quota is not the reason. What came before it is landed.
    """
    service.resume_open()
    for feed, pulls in _pulls(service, what):
        landed: list[Landed] = []
        try:
            landed += (pull() for pull in pulls)
        except Defer as error:
            yield Pulled(feed, tuple(landed), nothing_because=f"deferred: {error}", deferred=error)
            return
        deferred = next((one.deferred for one in landed if one.deferred is not None), None)
        yield Pulled(feed, tuple(landed), deferred=deferred)
        if deferred is not None:
            return


def _pulls(
    service: CatalogSession, what: Poll
) -> Iterator[tuple[Feed, list[Callable[[], Landed]]]]:
    puller, upper = service.puller(), service.window().upper
    horizon = None if upper is None else upper.date()
    if what.cancellations:
        yield "cancellations", [partial(puller.cancellations, what.since)]
    if what.windows:
        look = partial(puller.events, coins=service.coins, categories=service.categories)
        yield "events", [partial(look, first, last or horizon) for first, last in what.windows]
    if what.event_ids:
        yield "event", [partial(puller.event, event_id) for event_id in what.event_ids]
