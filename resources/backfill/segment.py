"""A segment of a range of event dates, paged in order of dates and landed on the way.

Several segments are paged in parallel (parallel.py). Lists are sorted by date, so all events that
begin before the last row of a page have been received. A segment can be split at a later date, and
its later part becomes another segment. Pages are kept and landed as those of any pull
(ingest/kept_pages.py). Instants are aware UTC.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from catalog.contract.plans import INSTANT_STEP
from resources.http.pages import RawPage
from resources.http.paginator import Paginator
from resources.ingest.context import PullContext
from resources.ingest.kept_pages import PagesInMemory, land_pages
from resources.ingest.scopes import parts_of
from warehouse.landing.batches import Manifest, Scope


class Segment:
    """The events of `scope`, whose bounds are set, up to `stop`.

    `landed_to` is the date up to which it is landed, `reached` up to which it is paged; both
    exclusive.
    """

    def __init__(self, context: PullContext, scope: Scope) -> None:
        assert scope.lower is not None and scope.upper is not None
        self.scope = scope
        self.stop = scope.upper + INSTANT_STEP
        self.landed_to = self.reached = scope.lower
        self.rows = 0
        self.rows_left: int | None = None
        """The rows that are not paged yet, by `meta.total`; None before the first page."""
        self._rows_in_later = 0
        self._split_from: Segment | None = None
        self._guessed = 0
        self.is_guessed = False
        """Whether `rows_left` is a guess: until the segment split off has its first page."""
        self._context = context
        self._paginator: Paginator = context.client.resume_events(parts_of("events", scope))
        self._pages: Iterator[RawPage] = iter(self._paginator)
        self._kept = PagesInMemory("events")
        self._unlanded_requests = 0
        self.ended = False

    def fetch(self) -> RawPage | None:
        """Return the next page, None after the last. Only this method may run in another thread.

        Raises:
            CatalogError: any of the tree.
        """
        return next(self._pages, None)

    def take(self, page: RawPage | None) -> None:
        """Record a page: how far the segment is paged, and how much is left."""
        if page is not None:
            self._kept.keep(page, received_at=self._context.clock())
            at = self._kept.ends_at
            self.rows += page.rows
            self._unlanded_requests += page.attempts
            if at is not None:
                self.reached = min(self.stop, max(self.reached, at))
            if page.total is not None:
                self._correct(page.total)
                self.rows_left = max(0, page.total - self.rows - self._rows_in_later)
        if page is None or not self._paginator.remaining():
            self.ended = True
            self.reached = self.stop
        if self.reached >= self.stop:
            self.rows_left = 0

    @property
    def requests(self) -> int:
        """The requests so far, including those that were too slow."""
        return self._paginator.requests

    @property
    def pages_fresh(self) -> int:
        """How many pages are not landed yet."""
        return self._kept.fresh

    @property
    def done(self) -> bool:
        return self.ended or self.reached >= self.stop

    def split(self, at: datetime) -> "Segment":
        """End before an instant that is not paged yet, and return the segment from there on.

        Its number of rows is a guess, half of those left, until its first page has a total.
        """
        assert self.reached < at < self.stop
        scope = msgspec.structs.replace(self.scope, lower=at, upper=self.stop - INSTANT_STEP)
        later = Segment(self._context, scope)
        later._split_from, later._guessed = self, (self.rows_left or 0) // 2
        self.stop, self.is_guessed = at, True
        self._rows_in_later += later._guessed
        self.rows_left = max(0, (self.rows_left or 0) - later._guessed)
        return later

    def land(self, to: datetime) -> Manifest | None:
        """Land the events that begin before a paged instant; None if nothing is new.

        Pages that may have later rows are landed again with the next batch.
        """
        assert to <= self.reached
        if to <= self.landed_to:
            return None
        at_end = self.ended and to == self.stop
        why = self._paginator.report.why_incomplete if at_end and self._has_original_end else ""
        manifest = land_pages(
            self._context,
            self._kept,
            "events",
            msgspec.structs.replace(self.scope, lower=self.landed_to, upper=to - INSTANT_STEP),
            requests=self._unlanded_requests,
            why_incomplete=why,
        )
        if manifest is None:
            return None
        self.landed_to = to
        self._unlanded_requests = 0
        if at_end:
            self._kept.drop()
        else:
            self._kept.landed_to(to)
        return manifest

    def _correct(self, total: int) -> None:
        """Correct the guessed rows of the segment that this one was split from."""
        earlier, self._split_from = self._split_from, None
        if earlier is None:
            return
        earlier.is_guessed = False
        earlier._rows_in_later += total - self._guessed
        if earlier.rows_left is not None:
            earlier.rows_left = max(0, earlier.rows_left - (total - self._guessed))

    @property
    def _has_original_end(self) -> bool:
        return self.scope.upper is not None and self.stop == self.scope.upper + INSTANT_STEP
