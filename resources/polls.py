"""One poll: the windows, the cancellations and the single events that are worth a look now.

What is asked for was planned elsewhere (pipeline/poll_planner.py). Belongs here: asking for it and
landing what came, with the watchlist, as far as the quota lets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial

from resources.daily_pulls import Pulled
from resources.errors import Defer
from resources.landed import Landed
from resources.service import Service
from warehouse.batches import Feed


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


def poll(service: Service, what: Poll) -> Iterator[Pulled]:
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


def _pulls(service: Service, what: Poll) -> Iterator[tuple[Feed, list[Callable[[], Landed]]]]:
    puller, upper = service.puller(), service.window().upper
    horizon = None if upper is None else upper.date()
    if what.cancellations:
        yield "cancellations", [partial(puller.cancellations, what.since)]
    if what.windows:
        look = partial(puller.events, coins=service.coins, categories=service.categories)
        yield "events", [partial(look, first, last or horizon) for first, last in what.windows]
    if what.event_ids:
        yield "event", [partial(puller.event, event_id) for event_id in what.event_ids]
