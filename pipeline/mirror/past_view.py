"""A view of the catalog as known at a time, which queries the published file for each request."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property, lru_cache, partial
from typing import Final

from catalog.contract.plans import Window
from catalog.server.memory_view import CoinBook
from catalog.server.store import (
    CancellationKey,
    CancellationSlice,
    CoinKey,
    CoinQuery,
    CoinSlice,
    Counters,
    DateKey,
    EventQuery,
    EventSlice,
    ImpactKey,
    StoredCategory,
    StoredCoin,
    StoredEvent,
)
from pipeline.mirror.published_catalog import KnownCancellation, PublishedCatalog, Values

_NO_COUNTERS = Counters(0, 0, None)
_VIEWS_KEPT: Final = 16


class PastViews:
    """The views of a published file. Safe to call from several threads."""

    def __init__(self, catalog: PublishedCatalog) -> None:
        self._times = catalog.times()
        self._view = lru_cache(maxsize=_VIEWS_KEPT)(partial(PastView, catalog))

    def at(self, ts: datetime) -> "PastView":
        """Return the view of a time: the same one until the next time something became known."""
        place = bisect_right(self._times, ts)
        return self._view(self._times[place - 1] if place else ts)


class CancellationBook:
    """The cancellations known at a time.

    The cancellations since a time include those that became known since. The warehouse may learn
    of a cancellation long after it, and a client requests only those since its last request.
    """

    def __init__(self, cancelled: Sequence[KnownCancellation]) -> None:
        self._cancelled = cancelled
        self._keys: list[CancellationKey] = [
            (entry.cancelled_at.timestamp(), entry.id) for entry, _ in cancelled
        ]
        self._by_id = {entry.id: entry.cancelled_at for entry, _ in cancelled}

    def cancelled_at(self, event_id: str) -> datetime | None:
        return self._by_id.get(event_id)

    def page(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice:
        begin = bisect_left(self._keys, (since.timestamp(), ""))
        late = [place for place in range(begin) if self._cancelled[place].known_from >= since]
        places = [*late, *range(begin, len(self._keys))]
        first = 0
        if after is not None:
            first = bisect_right(places, after, key=self._keys.__getitem__)
        entries = [self._cancelled[place].entry for place in places[first : first + limit]]
        return CancellationSlice(entries, more=len(places) > first + limit, total=len(places))


class PastView:
    """`CatalogView` over a published file at a time. Cancellations are read once."""

    def __init__(self, catalog: PublishedCatalog, ts: datetime) -> None:
        self._catalog = catalog
        self._ts = ts
        self._counters: dict[tuple[Window, int | None], dict[str, Counters]] = {}

    def events(
        self, query: EventQuery, *, after: DateKey | ImpactKey | None, limit: int
    ) -> EventSlice:
        if query.window.empty:
            return EventSlice((), more=False, total=0)
        filters = self._filters(query)
        found, total = self._catalog.page(filters, _key_values(query, after), limit + 1)
        if after is not None and not found:
            # Nothing follows the key.
            _, total = self._catalog.page(filters, _key_values(query, None), 1)
        return EventSlice(found[:limit], more=len(found) > limit, total=total)

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        if query.window.empty:
            return iter(())
        return self._catalog.iter_matching(self._filters(query))

    def event(self, event_id: str) -> StoredEvent | None:
        return self._catalog.event(event_id, self._ts)

    def cancelled_at(self, event_id: str) -> datetime | None:
        return self._cancellations.cancelled_at(event_id)

    def cancellations(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice:
        return self._cancellations.page(since=since, after=after, limit=limit)

    def coins(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> CoinSlice:
        return self._book.page(query, after=after, limit=limit)

    def coin(self, slug: str) -> StoredCoin | None:
        return self._book.get(slug)

    def counters(self, slug: str, window: Window, *, coverage_top: int | None) -> Counters:
        key = window, coverage_top
        if key not in self._counters:
            top = self._top(coverage_top)
            self._counters[key] = self._catalog.counters(self._ts, window, top)
        return self._counters[key].get(slug, _NO_COUNTERS)

    def categories(self) -> Sequence[StoredCategory]:
        return self._catalog.categories(self._ts)

    @cached_property
    def _book(self) -> CoinBook:
        return self._catalog.coins(self._ts)

    @cached_property
    def _cancellations(self) -> "CancellationBook":
        return CancellationBook(self._catalog.cancelled(self._ts))

    def _top(self, coverage_top: int | None) -> list[str] | None:
        return None if coverage_top is None else sorted(self._book.top(coverage_top))

    def _filters(self, query: EventQuery) -> Values:
        names = None
        if query.categories is not None:
            names = [c.name for c in self.categories() if c.id in query.categories]
        return {
            "ts": self._ts,
            "least": query.window.lower,
            "most": query.window.upper,
            "slugs": None if query.coins is None else sorted(query.coins),
            "names": names,
            "keyword": query.keyword,
            "in_description": query.keyword_in_description,
            "score": query.impact_min,
            "top": self._top(query.coverage_top),
            "by_impact": query.order == "impact_desc",
        }


def _key_values(query: EventQuery, after: DateKey | ImpactKey | None) -> Values:
    """Return the values of a key; the score of a key by date is 0."""
    if after is None:
        return {"after_score": None, "after_date": None, "after_id": None}
    *scores, date, event_id = after
    score = scores[0] if query.order == "impact_desc" else 0.0
    return {"after_score": score, "after_date": date, "after_id": event_id}
