"""Segments of a range of event dates, paged in parallel and landed on the way.

Lists are sorted by date, so all events that begin before the last row of a page have been received.
If responses take long, requesting one page after another leaves most of the rate unused. So idle
workers take the later part of the longest segment, from the beginning of a month, if that costs
little: where two segments meet, half a page is requested twice. Does not belong here: the batches
of earlier runs (state.py), the price. Times are aware UTC.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime
from math import ceil, inf
from time import monotonic as time_monotonic
from typing import Final

import msgspec

from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import INSTANT_STEP
from resources.errors import CatalogError, Defer
from resources.http.paginator import Paginator, RawPage
from resources.ingest.context import PullContext
from resources.ingest.paged_pull import PagesInMemory, land_pages
from resources.ingest.scopes import months_over, split_into_lists
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
        self._paginator: Paginator = context.client.resume_events(split_into_lists("events", scope))
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
        if page is None or not self._paginator.progress.remaining:
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
        """End before a time that is not paged yet, and return the segment from there on.

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
        """Land the events that begin before a paged time; None if nothing is new.

        Pages that may have later rows are landed again with the next batch.
        """
        assert to <= self.reached
        if to <= self.landed_to:
            return None
        at_end = self.ended and to == self.stop
        why = self._paginator.why_incomplete if at_end and self._has_original_end else ""
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


WORKERS_MAX: Final = 32
_IN_ADVANCE: Final = 1.5
"""Pages in progress for each that the rate allows: some wait for the limiter."""
_EXTRA_PAGES_SHARE: Final = 0.0195
"""The share of pages that may be requested beyond the minimum, for speed."""
_PAGES_FOR_SPLIT: Final = 0.8
"""Half a page where two segments meet, and the events that extend from one into the next."""
_SHARE_AT_FIRST: Final = 0.7
"""The part of that share for the beginning; the rest splits the longest when others are done."""
_LEAST_PAGES_TO_SPLIT: Final = 6
_FEW_ROWS: Final = 2
_FEW_SHARE: Final = 0.000_5
_LEAST_PAGES_TO_LAND: Final = 3
_BATCHES: Final = 150
"""About how many batches a range has: a killed process loses the pages since the last one."""

_PAGE_S: Final = 0.2
"""The usual time of a page."""

FetchResult = tuple[RawPage | None, float]
"""A page, None after the last, and the seconds that it took."""


def estimate_seconds(pages: int, rate_per_s: float) -> float:
    """Return how long a range of so many pages usually takes, apart from waits for the limits."""
    segments = 1 + int(_EXTRA_PAGES_SHARE * pages / _PAGES_FOR_SPLIT)
    return pages * _PAGE_S / min(segments, _workers(rate_per_s, _PAGE_S))


def _workers(rate_per_s: float, page_s: float) -> int:
    return min(WORKERS_MAX, 1 + ceil(_IN_ADVANCE * rate_per_s * page_s))


class ParallelBackfill:
    """Pages through scopes of events, each with both bounds, and lands the pages. Used once.

    `rate_per_s` is what the limits allow; the time that a response takes is measured on the way.
    `requests` and `rows` count what was received; `deferred` is set if the quota ended it.
    """

    def __init__(
        self,
        context: PullContext,
        scopes: Sequence[Scope],
        *,
        rate_per_s: float,
        monotonic: Callable[[], float] = time_monotonic,
    ) -> None:
        self.rows = 0
        self.deferred: Defer | None = None
        self._context = context
        self._rate_per_s = rate_per_s
        self._monotonic = monotonic
        self._waiting = [Segment(context, scope) for scope in scopes]
        self._open: list[Segment] = []
        self._started: list[Segment] = []
        self._fetching: dict[Future[FetchResult], Segment] = {}
        self._errors: list[CatalogError] = []
        self._quickest_s = inf
        self._pages_expected = self._pages_wasted = 0.0
        self._any_done = False
        self._given = tuple(self._waiting)
        self._rows_promised: dict[Segment, int] = {}
        self._ids: set[str] = set()

    def __iter__(self) -> Iterator[Manifest]:
        """Yield each batch as it is landed, until all is landed or the quota is used up.

        Raises:
            CatalogError: any of the tree but Defer. Data received before it is landed.
        """
        with ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="almanac-backfill") as workers:
            try:
                while (self._waiting or self._fetching) and not self._errors:
                    self._start_segments(workers)
                    ready, _ = wait(self._fetching, return_when=FIRST_COMPLETED)
                    for future in ready:
                        segment = self._receive(future)
                        if not (segment.done or self._errors):
                            # The next page is requested while this one is landed.
                            self._fetch(workers, segment)
                        yield from self._land(segment)
                landed = self._finish_open()
            except BaseException:
                # The iteration ends early, or the process is interrupted.
                self._finish_open()
                raise
        yield from landed
        self._raise_failure()

    @property
    def requests(self) -> int:
        return sum(segment.requests for segment in self._started)

    @property
    def missing(self) -> int:
        """How many rows that meta.total promised did not arrive, once all is paged; else 0.

        A few missing rows are not an error: events are cancelled while they are paged.
        """
        if self._waiting or self._errors or len(self._given) > 1:
            return 0
        promised = sum(self._rows_promised.values())
        missing = promised - len(self._ids)
        return missing if missing > max(_FEW_ROWS, _FEW_SHARE * promised) else 0

    def _start_segments(self, workers: ThreadPoolExecutor) -> None:
        """Give each idle worker a segment, if splitting another is cheap enough."""
        while len(self._fetching) < self._workers_wanted():
            segment = self._waiting.pop(0) if self._waiting else self._split()
            if segment is None:
                return
            self._open.append(segment)
            self._started.append(segment)
            self._fetch(workers, segment)

    def _fetch(self, workers: ThreadPoolExecutor, segment: Segment) -> None:
        self._fetching[workers.submit(self._fetch_timed, segment)] = segment

    def _fetch_timed(self, segment: Segment) -> FetchResult:
        began = self._monotonic()
        page = segment.fetch()
        return page, self._monotonic() - began

    def _workers_wanted(self) -> int:
        # The fastest page waited only for the service.
        return 1 if self._quickest_s == inf else _workers(self._rate_per_s, self._quickest_s)

    def _split(self) -> Segment | None:
        """Return the later part of the segment with most rows left, None if that costs too much."""
        allowed = (
            _EXTRA_PAGES_SHARE * self._pages_expected * (1.0 if self._any_done else _SHARE_AT_FIRST)
        )
        if self._pages_wasted + _PAGES_FOR_SPLIT > allowed:
            return None
        longest = max(
            self._fetching.values(), key=lambda segment: segment.rows_left or 0, default=None
        )
        # With a guess, splits would be used up on years with few events.
        if longest is None or longest.is_guessed:
            return None
        if (longest.rows_left or 0) < _LEAST_PAGES_TO_SPLIT * EVENTS_LIMIT_MAX:
            return None
        months = [
            at
            for at in months_over(longest.reached, longest.stop)
            if longest.reached < at < longest.stop
        ]
        if not months:
            return None
        middle = longest.reached + (longest.stop - longest.reached) / 2
        self._pages_wasted += _PAGES_FOR_SPLIT
        return longest.split(min(months, key=lambda at: abs(at - middle)))

    def _receive(self, future: Future[FetchResult]) -> Segment:
        """Record the page of a worker, or its error."""
        segment = self._fetching.pop(future)
        try:
            page, seconds = future.result()
        except CatalogError as error:
            self._errors.append(error)
            return segment
        is_first = segment.rows_left is None
        segment.take(page)
        if page is not None:
            self._quickest_s = min(self._quickest_s, seconds)
            self.rows += page.rows
            self._ids.update(page.ids)
            if segment in self._given and page.total is not None:
                least = min(self._rows_promised.get(segment, page.total), page.total)
                self._rows_promised[segment] = least
            if is_first and page.total is not None:
                self._pages_expected = max(self._pages_expected, page.total / EVENTS_LIMIT_MAX)
            self._context.report_progress(
                "events", self.rows, round(self._pages_expected * EVENTS_LIMIT_MAX) or None
            )
        return segment

    def _land(self, segment: Segment) -> Iterator[Manifest]:
        """Land the pages of a segment if they are enough for a batch."""
        worth = max(_LEAST_PAGES_TO_LAND, self._pages_expected / _BATCHES)
        if segment.done or segment.pages_fresh >= worth:
            manifest = segment.land(segment.reached)
            if manifest is not None:
                yield manifest
        if segment.done:
            self._any_done = True
            self._open.remove(segment)

    def _finish_open(self) -> list[Manifest]:
        """Wait for the pages in progress, and land all pages up to the last date that is whole."""
        # It may be interrupted and called again: nothing is removed before it is landed.
        wait(self._fetching)
        for future in list(self._fetching):
            self._receive(future)
        found = []
        while self._open:
            found.append(self._open[-1].land(self._open[-1].reached))
            self._open.pop()
        return [manifest for manifest in reversed(found) if manifest is not None]

    def _raise_failure(self) -> None:
        """Raise the first error that is not a Defer; set `deferred` if all are."""
        for error in self._errors:
            if not isinstance(error, Defer):
                error.left = f"{self.rows:,} rows arrived; those of complete dates are landed"
                raise error
            self.deferred = error
