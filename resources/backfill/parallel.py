"""Segments of a range of event dates, paged side by side and landed on the way.

At a long way to the service one page after another leaves most of the rate unused. So idle
workers take the later part of the longest segment, from the beginning of a month, where that costs
little: where two segments meet, half a page is requested twice. Belongs here: which segment is
paged, split and landed when. Does not: how a page is kept and landed (segment.py, kept_pages.py),
what was landed before (state.py), the price.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from math import ceil, inf
from time import monotonic as time_monotonic
from typing import Final

from catalog.contract.decisions import EVENTS_LIMIT_MAX
from resources.backfill.segment import Segment
from resources.errors import CatalogError, Defer
from resources.http.pages import RawPage
from resources.ingest.context import PullContext
from resources.ingest.scopes import months_over
from warehouse.landing.batches import Manifest, Scope

WORKERS_MAX: Final = 32
_IN_ADVANCE: Final = 1.5
"""Pages under way for each that the rate lets through: some wait for the limiter."""
_EXTRA_PAGES_SHARE: Final = 0.0195
"""The share of the pages that may be asked beyond the least, for the sake of speed."""
_PAGES_FOR_SPLIT: Final = 0.8
"""Half a page where two segments meet, and the events that run on from one to the next."""
_SHARE_AT_FIRST: Final = 0.7
"""The share of that for the beginning; with the rest the longest are cut when others are done."""
_LEAST_PAGES_TO_SPLIT: Final = 6
_FEW_ROWS: Final = 2
_FEW_SHARE: Final = 0.000_5
_LEAST_PAGES_TO_LAND: Final = 3
_BATCHES: Final = 150
"""About how many a range is landed in: a killed process loses the pages since the last one."""

Fetched = tuple[RawPage | None, float]
"""A page, None after the last, and the seconds that it took."""


class ParallelBackfill:
    """Pages through scopes of events, each with both bounds, and lands what comes. Used once.

    `rate_per_s` is what the limits allow; how long an answer takes is measured on the way.
    `requests` and `rows` count what came; `deferred` is set where the quota ended it.
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
        self._fetching: dict[Future[Fetched], Segment] = {}
        self._errors: list[CatalogError] = []
        self._quickest_s = inf
        self._pages_expected = self._pages_wasted = 0.0
        self._any_done = False
        self._given = tuple(self._waiting)
        self._rows_promised: dict[Segment, int] = {}
        self._ids: set[str] = set()

    def __iter__(self) -> Iterator[Manifest]:
        """Yield each batch as it is landed, until all is landed or the quota is out.

        Raises:
            CatalogError: any of the tree but Defer. What came before it is landed.
        """
        with ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="almanac-sweep") as workers:
            try:
                while (self._waiting or self._fetching) and not self._errors:
                    self._start_segments(workers)
                    ready, _ = wait(self._fetching, return_when=FIRST_COMPLETED)
                    for future in ready:
                        segment = self._receive(future)
                        if not (segment.done or self._errors):
                            # While it is landed the next page is on its way.
                            self._fetch(workers, segment)
                        yield from self._land(segment)
                landed = self._finish_open()
            except BaseException:
                # Whoever iterates stops, or the process is interrupted: not for the next try.
                with self._context.client.stop_retrying():
                    self._finish_open()
                raise
        yield from landed
        self._raise_failure()

    @property
    def requests(self) -> int:
        return sum(segment.requests for segment in self._started)

    @property
    def missing(self) -> int:
        """How many rows meta.total promised that did not come, once all is paged; else 0.

        A few are no fault: events are cancelled while they are paged.
        """
        if self._waiting or self._errors or len(self._given) > 1:
            return 0
        promised = sum(self._rows_promised.values())
        missing = promised - len(self._ids)
        return missing if missing > max(_FEW_ROWS, _FEW_SHARE * promised) else 0

    def _start_segments(self, workers: ThreadPoolExecutor) -> None:
        """Give every free worker something to do, as far as that is worth it."""
        while len(self._fetching) < self._workers_wanted():
            segment = self._waiting.pop(0) if self._waiting else self._split()
            if segment is None:
                return
            self._open.append(segment)
            self._started.append(segment)
            self._fetch(workers, segment)

    def _fetch(self, workers: ThreadPoolExecutor, segment: Segment) -> None:
        self._fetching[workers.submit(self._fetch_timed, segment)] = segment

    def _fetch_timed(self, segment: Segment) -> Fetched:
        began = self._monotonic()
        page = segment.fetch()
        return page, self._monotonic() - began

    def _workers_wanted(self) -> int:
        if self._quickest_s == inf:
            return 1
        # The quickest one waited for nobody but the service.
        return min(WORKERS_MAX, 1 + ceil(_IN_ADVANCE * self._rate_per_s * self._quickest_s))

    def _split(self) -> Segment | None:
        """Return the later part of the segment with most left, None where that costs too much."""
        allowed = (
            _EXTRA_PAGES_SHARE * self._pages_expected * (1.0 if self._any_done else _SHARE_AT_FIRST)
        )
        if self._pages_wasted + _PAGES_FOR_SPLIT > allowed:
            return None
        longest = max(
            self._fetching.values(), key=lambda segment: segment.rows_left or 0, default=None
        )
        # A guess at what is left would spend cuts on years in which little happened.
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

    def _receive(self, future: Future[Fetched]) -> Segment:
        """Take in what came, or why nothing did."""
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
        """Land what came of a segment, once it is worth a batch."""
        worth = max(_LEAST_PAGES_TO_LAND, self._pages_expected / _BATCHES)
        if segment.done or segment.pages_fresh >= worth:
            manifest = segment.land(segment.reached)
            if manifest is not None:
                yield manifest
        if segment.done:
            self._any_done = True
            self._open.remove(segment)

    def _finish_open(self) -> list[Manifest]:
        """Take in what is under way and land all that came, up to the last date that is whole."""
        # Interrupted here, it is entered again: nothing is taken out before it is there.
        wait(self._fetching)
        for future in list(self._fetching):
            self._receive(future)
        found = []
        while self._open:
            found.append(self._open[-1].land(self._open[-1].reached))
            self._open.pop()
        return [manifest for manifest in reversed(found) if manifest is not None]

    def _raise_failure(self) -> None:
        """Raise the first error that no waiting for the quota ends."""
        for error in self._errors:
            if not isinstance(error, Defer):
                error.left = f"{self.rows:,} rows arrived; those of complete dates are landed"
                raise error
            self.deferred = error
