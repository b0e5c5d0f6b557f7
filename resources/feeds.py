"""What a daily job and a poll pull, feed by feed, within what the plan shows.

A plan without a feed and a quota that is used up are outcomes, not errors: what was received is
landed, and the other feeds continue. Belongs here: requesting what was planned, and landing it.
Does not: what a poll should request (pipeline/polling).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from catalog.contract.plans import Plan
from resources.deferrals import DeferredPulls, deferred_pull, failed_export
from resources.errors import (
    AccessDenied,
    Defer,
    PlanLacksAccess,
    QuotaUnknown,
    RetryLater,
    TruncatedBody,
)
from resources.ingest.scopes import PollWindow
from resources.session import CatalogSession
from warehouse.landing.batches import Feed

if TYPE_CHECKING:
    from resources.ingest.context import Landed

OPTIONAL: Final = frozenset[Feed]({"categories"})
"""The feeds without which a pull goes on if the service refuses them (401, 402, 403): the interface
names no plan that lacks them."""
NEAR_BEFORE_DAYS: Final = 1
NEAR_AFTER_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of pulling one feed. `why_nothing` is empty if something was received.

    `refused` is the service's refusal of a feed that the other feeds do not need.
    """

    feed: Feed
    landed: "tuple[Landed, ...]" = ()
    why_nothing: str = ""
    refused: str = ""
    deferred: Defer | None = field(default=None, repr=False)

    @property
    def requests(self) -> int:
        return sum(pull.requests for pull in self.landed)

    @property
    def rows(self) -> int:
        return sum(page.rows for page in self.landed)


def pull(feed: Feed, service: CatalogSession) -> Pulled:
    """Pull a feed and land the result.

    Raises:
        CatalogError: for another reason than the plan or the quota.
    """
    if plan_lacks(service.plan, feed):
        return Pulled(feed, why_nothing=f"not in the plan {service.plan.name}")
    service.resume_open()
    try:
        landed = _PULLS[feed](service)
    except AccessDenied as error:
        if feed in OPTIONAL:
            return Pulled(feed, why_nothing=f"refused: {error}", refused=error.happened)
        if not isinstance(error, PlanLacksAccess):
            raise
        return Pulled(feed, why_nothing=f"not in the plan {service.plan.name}: {error}")
    except Defer as error:
        return Pulled(feed, why_nothing=f"deferred: {error}", deferred=error)
    except (RetryLater, TruncatedBody) as error:
        if feed != "export" or isinstance(error, QuotaUnknown):
            raise
        # The other feeds go on without it; the deferral resumes it.
        later = failed_export(error, service.now())
        return Pulled(feed, why_nothing=f"deferred: {later}", deferred=later)
    deferred = next(
        (landing_.deferred for landing_ in landed if landing_.deferred is not None), None
    )
    return Pulled(feed, tuple(landed), deferred=deferred)


def plan_lacks(plan: Plan, feed: Feed) -> bool:
    """Whether a plan does not include a feed, by the table of the contract."""
    return feed == "export" and not plan.export


def _export(service: CatalogSession) -> "list[Landed]":
    return service.puller().export(None, None, coins=service.coins, categories=service.categories)


def _events(service: CatalogSession) -> "list[Landed]":
    """Pull the near days if the export has the rest, else all that the plan shows."""
    today, window = service.today(), PollWindow(service.window().lower.date(), None)
    if service.plan.export:
        near = today - timedelta(days=NEAR_BEFORE_DAYS), today + timedelta(days=NEAR_AFTER_DAYS)
        window = PollWindow(*near)
    return [_events_in(service, window)]


def _events_in(service: CatalogSession, window: PollWindow) -> "Landed":
    """Pull the events of a window; without a last date, up to the end of what the plan shows."""
    horizon = service.window().upper
    last = window.last or (None if horizon is None else horizon.date())
    return service.puller().events(
        window.first, last, coins=service.coins, categories=service.categories
    )


_PULLS: Final[Mapping[Feed, Callable[[CatalogSession], "list[Landed]"]]] = {
    "export": _export,
    "events": _events,
    "cancellations": lambda service: [service.puller().cancellations()],
    "coins": lambda service: [service.puller().coins()],
    "categories": lambda service: [service.puller().categories()],
}


@dataclass(frozen=True, slots=True)
class Poll:
    """What to pull. `cancellations` says whether to pull the cancellations.

    `since` is their earliest instant; None requests all that the service lists.
    """

    windows: tuple[PollWindow, ...] = ()
    cancellations: bool = False
    since: datetime | None = None
    event_ids: tuple[str, ...] = ()


def poll(service: CatalogSession, what: Poll) -> Iterator[Pulled]:
    """Land what is requested, and yield the result of each feed; stop if the quota is used up.

    Raises:
        CatalogError: for another reason than the quota. What was received before it is landed.
    """
    service.resume_open()
    for feed, pulls in _pulls(service, what):
        landed: list[Landed] = []
        try:
            landed += (pull() for pull in pulls)
        except Defer as error:
            yield Pulled(feed, tuple(landed), why_nothing=f"deferred: {error}", deferred=error)
            return
        deferred = next(
            (landing_.deferred for landing_ in landed if landing_.deferred is not None), None
        )
        yield Pulled(feed, tuple(landed), deferred=deferred)
        if deferred is not None:
            return


def poll_and_note(
    service: CatalogSession, what: Poll, deferrals: DeferredPulls
) -> Iterator[Pulled]:
    """Land what is requested as `poll` does, and note what was deferred and what no longer is.

    Raises:
        CatalogError: as `poll`.
    """
    deferrals.settle("polls", service.now())
    for pulled in poll(service, what):
        yield pulled
        if pulled.deferred is None:
            deferrals.done("polls", pulled.feed)
        else:
            deferrals.note(deferred_pull("polls", pulled.feed, pulled.deferred, service.now()))


def _pulls(
    service: CatalogSession, what: Poll
) -> "Iterator[tuple[Feed, list[Callable[[], Landed]]]]":
    puller = service.puller()
    if what.cancellations:
        yield "cancellations", [partial(puller.cancellations, what.since)]
    if what.windows:
        yield "events", [partial(_events_in, service, window) for window in what.windows]
    if what.event_ids:
        yield "event", [partial(puller.event, event_id) for event_id in what.event_ids]
