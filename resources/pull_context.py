"""What every pull of a puller shares: where it asks, where it lands, under which plan, whose time.

Belongs here: handing these on, and filling in what each batch says of them. Does not: what is
asked (pull_scopes), what comes (paged_pulls, export_landing).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from catalog.contract.plans import Plan
from resources.client import CatalogClient
from resources.landing_room import LandingRoom
from resources.service_clock import ServiceClock
from warehouse.batches import Feed, Scope
from warehouse.cells import storable_text
from warehouse.journal import Intent, OpenPull
from warehouse.landing import Pull

OnPage = Callable[[str, int, int | None], None]
"""Hears of progress: feed, rows so far, and how many the service said would come."""


@dataclass(frozen=True, slots=True)
class PullContext:
    """`clock` is the machine's, `service` the service's."""

    client: CatalogClient
    room: LandingRoom
    plan: Plan
    source: str
    clock: Callable[[], datetime]
    service: ServiceClock
    on_page: OnPage | None = None

    def told(self, feed: Feed, rows: int, total: int | None) -> None:
        if self.on_page is not None:
            self.on_page(feed, rows, total)

    def pull(
        self,
        feed: Feed,
        scope: Scope,
        *,
        observed_at: datetime,
        content_at: datetime,
        requests: int,
        rows_claimed: int | None = None,
        why_incomplete: str | None = None,
        of: Intent | None = None,
        date_doubt: str = "",
    ) -> Pull:
        """Return what a batch says of itself, with the plan and source `of` an earlier pull.

        Nothing was true after it was observed, whatever the answer says of itself.
        """
        return Pull(
            feed=feed,
            scope=scope,
            plan=self.plan.name if of is None else of.plan,
            source=self.source if of is None else of.source,
            observed_at=observed_at,
            content_at=min(content_at, observed_at),
            landed_at=self.clock(),
            requests=requests,
            rows_claimed=rows_claimed,
            why_incomplete=None if not why_incomplete else storable_text(why_incomplete),
            date_doubt=date_doubt or None,
        )

    @contextmanager
    def begun(self, feed: Feed, scope: Scope) -> Iterator[OpenPull]:
        """Begin a journaled pull and hold it against others while it is under way."""
        started_at = self.clock()
        for tries in count():
            intent = Intent(
                feed=feed,
                scope=scope,
                plan=self.plan.name,
                source=self.source,
                # Two pulls of the same moment must not share a journal.
                started_at=started_at + timedelta(microseconds=tries),
            )
            with self.room.holding(intent.pull_id) as mine:
                if mine and not self.room.is_open(intent):
                    yield self.room.begin(intent)
                    return
