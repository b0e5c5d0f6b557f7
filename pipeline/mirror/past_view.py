"""A view of the catalog as known at a time, which queries the published file for each request."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from catalog.contract.plans import Window
from catalog.server.memory_view import CoinBook
from catalog.server.store import (
    CancellationKey,
    CancellationSlice,
    CancelledEntry,
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
from pipeline.mirror.published_catalog import PublishedCatalog, Values

_NO_COUNTERS = Counters(0, 0, None)


class PastView:
    """`CatalogView` over a published file at a time. Coins and cancellations are read once.

    A keyword is compared in lower case, where the view in memory folds cases: they differ for a few
    letters such as ß.
    """

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
        values = {**filters, **_after(query, after), "limit": limit + 1}
        found = list(self._catalog.page(_statement(query), values))
        whole = after is None and len(found) <= limit
        total = len(found) if whole else self._catalog.count(filters)
        return EventSlice(found[:limit], more=len(found) > limit, total=total)

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        if query.window.empty:
            return iter(())
        values = {**self._filters(query), **_after(query, None), "limit": None}
        return self._catalog.page(_statement(query), values)

    def event(self, event_id: str) -> StoredEvent | None:
        return self._catalog.event(event_id, self._ts)

    def cancelled_at(self, event_id: str) -> datetime | None:
        return self._cancelled_by_id.get(event_id)

    def cancellations(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice:
        keys = self._cancelled_keys
        begin = bisect_left(keys, (since.timestamp(), ""))
        first = begin if after is None else max(begin, bisect_right(keys, after))
        entries = self._cancelled[first : first + limit]
        return CancellationSlice(entries, more=len(keys) > first + limit, total=len(keys) - begin)

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
        return self._categories

    @cached_property
    def _book(self) -> CoinBook:
        return CoinBook(self._catalog.coins(self._ts))

    @cached_property
    def _categories(self) -> tuple[StoredCategory, ...]:
        return self._catalog.categories(self._ts)

    @cached_property
    def _cancelled(self) -> list[CancelledEntry]:
        return self._catalog.cancelled(self._ts)

    @cached_property
    def _cancelled_keys(self) -> list[CancellationKey]:
        return [(entry.cancelled_at.timestamp(), entry.id) for entry in self._cancelled]

    @cached_property
    def _cancelled_by_id(self) -> dict[str, datetime]:
        return {entry.id: entry.cancelled_at for entry in self._cancelled}

    def _top(self, coverage_top: int | None) -> list[str] | None:
        return None if coverage_top is None else sorted(self._book.top(coverage_top))

    def _filters(self, query: EventQuery) -> Values:
        names = None
        if query.categories is not None:
            names = [c.name for c in self._categories if c.id in query.categories]
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
        }


def _statement(query: EventQuery) -> str:
    return "page_by_impact" if query.order == "impact_desc" else "page_by_date"


def _after(query: EventQuery, after: DateKey | ImpactKey | None) -> dict[str, Any]:
    """Return the values of a key for the statement of a query."""
    *numbers, event_id = (None, None, None) if after is None else after
    found = {"after_date": numbers[-1], "after_id": event_id}
    return found | {"after_score": numbers[0]} if query.order == "impact_desc" else found
