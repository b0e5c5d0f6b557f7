"""A catalog view held in memory: plain indexes, no query engine.

Immutable: `edited` returns the next view and shares what did not change, so a page or an
export in progress continues over its own state.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from catalog.contract.decisions import IMPACT_MAJOR
from catalog.contract.windows import Window
from catalog.server.memory.coin_index import CoinBook
from catalog.server.memory.event_index import EMPTY_RUN, EventIndex, KeyRun, merged_run
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
    impact_key,
)

EventFilter = Callable[[StoredEvent], bool]
_NO_COUNTERS = Counters(0, 0, None)
_COUNTER_WINDOWS_MAX = 8


class MemoryView:
    """`CatalogView` over an index of live events, a coin book and the cancellations."""

    def __init__(
        self,
        index: EventIndex,
        *,
        coins: CoinBook,
        categories: Sequence[StoredCategory],
        cancelled: dict[str, datetime],
    ) -> None:
        self._index = index
        self._coins = coins
        self._categories = categories
        self._cancelled = cancelled
        self._cancelled_keys = sorted((at.timestamp(), key) for key, at in cancelled.items())
        self._counters: dict[tuple[Window, int | None], dict[str, Counters]] = {}

    def edited(
        self,
        changes: Mapping[str, StoredEvent | None],
        *,
        coins: CoinBook,
        cancelled: dict[str, datetime],
    ) -> "MemoryView":
        index = self._index.edited(changes) if changes else self._index
        return MemoryView(index, coins=coins, categories=self._categories, cancelled=cancelled)

    @property
    def book(self) -> CoinBook:
        return self._coins

    def event(self, event_id: str) -> StoredEvent | None:
        return self._index.events.get(event_id)

    def cancelled_at(self, event_id: str) -> datetime | None:
        return self._cancelled.get(event_id)

    def coin(self, slug: str) -> StoredCoin | None:
        return self._coins.get(slug)

    def coins(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> CoinSlice:
        return self._coins.page(query, after=after, limit=limit)

    def categories(self) -> Sequence[StoredCategory]:
        return self._categories

    def cancellations(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice:
        keys = self._cancelled_keys
        begin = bisect_left(keys, (since.timestamp(), ""))
        first = begin if after is None else max(begin, bisect_right(keys, after))
        entries = [
            CancelledEntry(event_id, self._cancelled[event_id])
            for _, event_id in keys[first : first + limit]
        ]
        return CancellationSlice(entries, more=len(keys) > first + limit, total=len(keys) - begin)

    def events(
        self, query: EventQuery, *, after: DateKey | ImpactKey | None, limit: int
    ) -> EventSlice:
        if query.window.empty:
            return EventSlice((), more=False, total=0)
        span, matches = self._span(query), self._filter_of(query)
        if query.order == "impact_desc":
            return self._most_impact(query, span, matches, after, limit)
        events = self._index.events
        after_date = None if after is None else (float(after[0]), str(after[1]))
        if matches is None:
            keys = span.after(after_date, limit + 1)
            total = len(span)
        else:
            matching = [key for key in span if matches(events[key[1]])]
            first = 0 if after_date is None else bisect_right(matching, after_date)
            keys, total = matching[first : first + limit + 1], len(matching)
        page = [events[event_id] for _, event_id in keys[:limit]]
        return EventSlice(page, more=len(keys) > limit, total=total)

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        events, matches = self._index.events, self._filter_of(query)
        if query.order == "impact_desc":
            yield from self.events(query, after=None, limit=len(events)).events
            return
        for _, event_id in self._span(query):
            event = events[event_id]
            if matches is None or matches(event):
                yield event

    def counters(self, slug: str, window: Window, *, coverage_top: int | None) -> Counters:
        known = self._counters.get((window, coverage_top))
        if known is None:
            if len(self._counters) >= _COUNTER_WINDOWS_MAX:
                self._counters.clear()
            query = EventQuery(window, coverage_top=coverage_top)
            known = _count_by_coin(self.iter_events(query))
            self._counters[(window, coverage_top)] = known
        return known.get(slug, _NO_COUNTERS)

    def _span(self, query: EventQuery) -> KeyRun:
        """Return the shortest run that holds every match: by coins, categories, or all."""
        index = self._index
        if query.coins is not None:
            postings, names = index.by_coin, query.coins
        elif query.categories is not None:
            postings, names = index.by_category, query.categories
        else:
            return index.by_date.span(query.window)
        spans = [postings[name].span(query.window) for name in names if name in postings]
        if len(spans) <= 1:
            return spans[0] if spans else EMPTY_RUN
        return merged_run(spans)

    def _filter_of(self, query: EventQuery) -> EventFilter | None:
        """Return the test for the filters that the run does not apply, or None."""
        tests: list[EventFilter] = []
        if query.coins is not None and query.categories is not None:
            tagged = query.categories
            tests.append(lambda event: not tagged.isdisjoint(event.categories))
        if query.coverage_top is not None:
            covered = self._coins.top(query.coverage_top)
            tests.append(lambda event: not covered.isdisjoint(event.coins))
        if query.impact_min is not None:
            least = query.impact_min
            tests.append(lambda event: event.impact is not None and event.impact >= least)
        if query.keyword is not None:
            tests.append(self._mentions(query.keyword, in_description=query.keyword_in_description))
        if not tests:
            return None
        if len(tests) == 1:
            return tests[0]
        return lambda event: all(test(event) for test in tests)

    def _mentions(self, keyword: str, *, in_description: bool) -> EventFilter:
        texts = self._index.texts

        def mentions(event: StoredEvent) -> bool:
            title, description = texts[event.id]
            return keyword in title or (in_description and keyword in description)

        return mentions

    def _most_impact(
        self,
        query: EventQuery,
        span: KeyRun,
        matches: EventFilter | None,
        after: DateKey | ImpactKey | None,
        limit: int,
    ) -> EventSlice:
        events = self._index.events
        if matches is None and query.coins is None and query.categories is None:
            # The whole window, whose size is known: stop as soon as the page is full.
            first = 0 if after is None else bisect_right(self._index.by_impact, after)
            found: list[StoredEvent] = []
            for place in range(first, len(self._index.by_impact)):
                event = events[self._index.by_impact[place][2]]
                if query.window.overlaps(event.date, event.date_end):
                    found.append(event)
                    if len(found) > limit:
                        break
            return EventSlice(found[:limit], more=len(found) > limit, total=len(span))
        live = (events[event_id] for _, event_id in span)
        matching = [event for event in live if matches is None or matches(event)]
        pairs = sorted(((impact_key(event), event) for event in matching), key=itemgetter(0))
        first = 0 if after is None else bisect_right(pairs, after, key=itemgetter(0))
        page = [event for _, event in pairs[first : first + limit]]
        return EventSlice(page, more=len(pairs) > first + limit, total=len(pairs))


def _count_by_coin(events: Iterable[StoredEvent]) -> dict[str, Counters]:
    scores: dict[str, list[float | None]] = {}
    for event in events:
        for slug in event.coins:
            scores.setdefault(slug, []).append(event.impact)
    counters: dict[str, Counters] = {}
    for slug, impacts in scores.items():
        known = [impact for impact in impacts if impact is not None]
        major = sum(impact >= IMPACT_MAJOR for impact in known)
        counters[slug] = Counters(len(impacts), major, max(known, default=None))
    return counters
