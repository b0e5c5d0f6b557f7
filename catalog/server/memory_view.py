"""A catalog view in memory: indexes by date, coin, category and impact, without a query engine.

Nothing here changes once it is made: `edited` returns the next view, which shares the unchanged
parts. So a page or an export in progress continues to read its own state.

An event on `[date, dateEnd]` matches a window that it overlaps, also if it began before the window.
Such events are few: lists of their own are scanned for them. Bisection finds the others.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain, pairwise
from operator import attrgetter, itemgetter

from catalog.contract.plans import Window
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
    coin_key,
    date_key,
    impact_key,
)

_BETWEEN = "\n"
"""Prevents a search from matching across the end of a name."""


class TextIndex:
    """Finds the texts that contain a text, among those with its rarest pair of letters."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            for part in {*text, *map("".join, pairwise(text))}:
                self._places[part].append(place)

    def search(self, q: str) -> list[int]:
        """Return the places of the texts that contain `q`, ascending."""
        pairs = map("".join, pairwise(q)) if len(q) > 1 else (q,)
        candidates = min((self._places.get(pair, []) for pair in pairs), key=len)
        if len(q) <= 2:
            return candidates
        texts = self._texts
        return [place for place in candidates if q in texts[place]]


class CoinBook:
    """Coins that never change: ranks change only at a sync, which makes a new book."""

    def __init__(self, coins: Iterable[StoredCoin]) -> None:
        self.coins = sorted(coins, key=coin_key)
        self._keys = [coin_key(coin) for coin in self.coins]
        self._by_slug = {coin.slug: coin for coin in self.coins}
        self._tops: dict[int, frozenset[str]] = {}

    @cached_property
    def _texts(self) -> TextIndex:
        return TextIndex([f"{coin.name}{_BETWEEN}{coin.symbol}".casefold() for coin in self.coins])

    def get(self, slug: str) -> StoredCoin | None:
        return self._by_slug.get(slug)

    def top(self, count: int) -> frozenset[str]:
        """Return the slugs whose rank is at most `count`."""
        if count not in self._tops:
            last = bisect_left(self._keys, (count + 1, ""))
            self._tops[count] = frozenset(coin.slug for coin in self.coins[:last])
        return self._tops[count]

    def page(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> CoinSlice:
        last = len(self.coins)
        if query.coverage_top is not None:
            last = bisect_left(self._keys, (query.coverage_top + 1, ""))
        first = 0 if after is None else bisect_right(self._keys, after)
        if query.q is None and query.tracked is None:
            chosen = self.coins[first : min(last, first + limit + 1)]
            return CoinSlice(chosen[:limit], more=len(chosen) > limit, total=last)
        found = self._search(query, last)
        start = bisect_left(found, first)
        page = [self.coins[place] for place in found[start : start + limit]]
        return CoinSlice(page, more=len(found) > start + limit, total=len(found))

    def _search(self, query: CoinQuery, last: int) -> Sequence[int]:
        """Return the places of the coins of a query among the first `last`."""
        coins, tracked = self.coins, query.tracked
        found: Sequence[int] = range(last)
        if query.q is not None:
            found = [] if _BETWEEN in query.q else self._texts.search(query.q)
            found = found[: bisect_left(found, last)]
        if tracked is None:
            return found
        return [place for place in found if coins[place].tracked is tracked]


Names = Callable[[StoredEvent], tuple[str, ...]]
_coins_of: Names = attrgetter("coins")


def _categories_of(event: StoredEvent) -> tuple[str, ...]:
    return event.categories or ()


_AFTER_ANY_ID = "\U0010ffff"
LongKey = tuple[float, str, float]
"""Epoch seconds of the date, id, epoch seconds of the end: an event of several days."""


class KeyRun:
    """A run of keys in order: those that began before the window, then those inside it."""

    __slots__ = ("_first", "_head", "_keys", "_last")

    def __init__(
        self,
        keys: list[DateKey],
        *,
        first: int = 0,
        last: int | None = None,
        head: list[DateKey] | None = None,
    ) -> None:
        self._head = head or []
        self._keys = keys
        self._first = first
        self._last = max(first, len(keys) if last is None else last)

    def __len__(self) -> int:
        return len(self._head) + self._last - self._first

    def __iter__(self) -> Iterator[DateKey]:
        return chain(self._head, self._keys[self._first : self._last])

    def after(self, key: DateKey | None, limit: int) -> list[DateKey]:
        """Return at most `limit` keys strictly after `key`."""
        if key is None:
            head, first = self._head, self._first
        else:
            head = self._head[bisect_right(self._head, key) :]
            first = max(self._first, bisect_right(self._keys, key))
        taken = head[:limit]
        return taken + self._keys[first : max(first, min(self._last, first + limit - len(taken)))]


class KeyUnion:
    """The union of several runs in order; an event in two of them is there once.

    Only `shared` runs can have an event of another run, so only these are compared to count.
    """

    __slots__ = ("_runs", "_shared")

    def __init__(self, runs: Sequence[KeyRun], shared: Sequence[KeyRun]) -> None:
        self._runs = runs
        self._shared = shared

    def __len__(self) -> int:
        repeated = sum(map(len, self._shared)) - len(set().union(*self._shared))
        return sum(map(len, self._runs)) - repeated

    def __iter__(self) -> Iterator[DateKey]:
        return iter(sorted(set().union(*self._runs)))

    def after(self, key: DateKey | None, limit: int) -> list[DateKey]:
        """Return at most `limit` keys strictly after `key`."""
        return sorted(set().union(*(run.after(key, limit) for run in self._runs)))[:limit]


EMPTY_RUN = KeyRun([])
_DAY_S = 86_400


class TimelineBuilder:
    """Takes events in the order of their keys."""

    __slots__ = ("_keys", "_long")

    def __init__(self) -> None:
        self._keys: list[DateKey] = []
        self._long: dict[int, list[LongKey]] = {}

    def add(self, key: DateKey, long: LongKey | None) -> None:
        self._keys.append(key)
        if long is not None:
            self._long.setdefault(days_bound(long), []).append(long)

    def timeline(self) -> "Timeline":
        return Timeline(self._keys, self._long)


class Timeline:
    """Keys of events sorted by date and id; events of several days also in lists of their own.

    The events of a list are shorter than its number of days, a power of four. So a search for the
    events that began before a time passes few that have ended.
    """

    __slots__ = ("_keys", "_long")

    def __init__(self, keys: list[DateKey], long: dict[int, list[LongKey]]) -> None:
        self._keys = keys
        self._long = long

    def __len__(self) -> int:
        return len(self._keys)

    def edited(self, *, removed: Iterable[StoredEvent], added: Iterable[StoredEvent]) -> "Timeline":
        """Return a timeline without some events and with some others."""
        keys = self._keys.copy()
        long = {days: entries.copy() for days, entries in self._long.items()}
        for event in removed:
            del keys[bisect_left(keys, date_key(event))]
            if event.date_end is not None:
                entries = long[days_bound(long_key(event))]
                del entries[bisect_left(entries, long_key(event))]
        for event in added:
            insort(keys, date_key(event))
            if event.date_end is not None:
                insort(long.setdefault(days_bound(long_key(event)), []), long_key(event))
        return Timeline(keys, long)

    def span(self, window: Window) -> KeyRun:
        """Return the events that overlap the window, in order."""
        if window.empty:
            return EMPTY_RUN
        lower = window.lower.timestamp()
        first = bisect_left(self._keys, (lower, ""))
        last = None
        if window.upper is not None:
            last = bisect_right(self._keys, (window.upper.timestamp(), _AFTER_ANY_ID))
        head: list[DateKey] = []
        for days, entries in self._long.items():
            begun = bisect_left(entries, (lower - days * _DAY_S,))
            for start, event_id, end in entries[begun : bisect_left(entries, (lower,))]:
                if end >= lower:
                    head.append((start, event_id))
        head.sort()
        return KeyRun(self._keys, first=first, last=last, head=head)


@dataclass(frozen=True, slots=True)
class Postings:
    """Timelines by name, such as a coin; events with several names are also in `shared`."""

    every: dict[str, Timeline]
    shared: dict[str, Timeline]

    @classmethod
    def of(cls, keyed: Iterable[tuple[DateKey, StoredEvent]], names_of: Names) -> "Postings":
        """Make the timelines of events, which are in the order of their keys."""
        every: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        shared: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        for key, event in keyed:
            names = names_of(event)
            long = None if event.date_end is None else long_key(event)
            for name in names:
                every[name].add(key, long)
                if len(names) > 1:
                    shared[name].add(key, long)
        return cls(
            {name: builder.timeline() for name, builder in every.items()},
            {name: builder.timeline() for name, builder in shared.items()},
        )

    def edited(
        self, removed: Sequence[StoredEvent], added: Sequence[StoredEvent], names_of: Names
    ) -> "Postings":
        """Return the timelines without some events and with some others."""
        return Postings(
            _edited_timelines(self.every, removed, added, names_of),
            _edited_timelines(
                self.shared,
                [event for event in removed if len(names_of(event)) > 1],
                [event for event in added if len(names_of(event)) > 1],
                names_of,
            ),
        )

    def span(self, names: Iterable[str], window: Window) -> KeyRun | KeyUnion:
        """Return the events in the window that have one of the names, in order."""
        known = [name for name in names if name in self.every]
        runs = [self.every[name].span(window) for name in known]
        if len(runs) <= 1:
            return runs[0] if runs else EMPTY_RUN
        shared = [self.shared[name].span(window) for name in known if name in self.shared]
        return KeyUnion(runs, shared)


def _edited_timelines(
    timelines: dict[str, Timeline],
    removed: Iterable[StoredEvent],
    added: Iterable[StoredEvent],
    names_of: Names,
) -> dict[str, Timeline]:
    removed_by_name: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    added_by_name: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    for events, by_name in ((removed, removed_by_name), (added, added_by_name)):
        for event in events:
            for name in names_of(event):
                by_name[name].append(event)
    edited = timelines.copy()
    for name in removed_by_name.keys() | added_by_name.keys():
        timeline = edited.get(name) or Timeline([], {})
        edited[name] = timeline.edited(
            removed=removed_by_name.get(name, ()), added=added_by_name.get(name, ())
        )
    return edited


def long_key(event: StoredEvent) -> LongKey:
    end = event.date if event.date_end is None else event.date_end
    return (event.date.timestamp(), event.id, end.timestamp())


def days_bound(long: LongKey) -> int:
    """Return a number of days that the event is shorter than, a power of four."""
    start, _, end = long
    days = 4
    while end - start >= days * _DAY_S:
        days *= 4
    return days


@dataclass(frozen=True, slots=True)
class EventIndex:
    """An index that never changes; `edited` shares the parts that stay the same."""

    events: dict[str, StoredEvent]
    texts: dict[str, tuple[str, str]]
    """Title and description of each, casefolded."""
    by_date: Timeline
    by_coin: Postings
    by_category: Postings
    by_impact: list[ImpactKey]

    @classmethod
    def of(cls, events: Iterable[StoredEvent]) -> "EventIndex":
        by_id = {event.id: event for event in events}
        whole = TimelineBuilder()
        keyed = sorted(((date_key(event), event) for event in by_id.values()), key=itemgetter(0))
        for key, event in keyed:
            whole.add(key, None if event.date_end is None else long_key(event))
        return cls(
            events=by_id,
            texts={event.id: _text(event) for event in by_id.values()},
            by_date=whole.timeline(),
            by_coin=Postings.of(keyed, _coins_of),
            by_category=Postings.of(keyed, _categories_of),
            by_impact=sorted(map(impact_key, by_id.values())),
        )

    def edited(self, changes: Mapping[str, StoredEvent | None]) -> "EventIndex":
        """Return the index after some events changed; None means no longer live."""
        removed = [self.events[event_id] for event_id in changes if event_id in self.events]
        added = [event for event in changes.values() if event is not None]
        events, texts, by_impact = self.events.copy(), self.texts.copy(), self.by_impact.copy()
        for event in removed:
            del events[event.id], texts[event.id]
            del by_impact[bisect_left(by_impact, impact_key(event))]
        for event in added:
            events[event.id], texts[event.id] = event, _text(event)
            insort(by_impact, impact_key(event))
        return EventIndex(
            events=events,
            texts=texts,
            by_date=self.by_date.edited(removed=removed, added=added),
            by_coin=self.by_coin.edited(removed, added, _coins_of),
            by_category=self.by_category.edited(removed, added, _categories_of),
            by_impact=by_impact,
        )


def _text(event: StoredEvent) -> tuple[str, str]:
    return event.title.casefold(), (event.description or "").casefold()


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

    def _span(self, query: EventQuery) -> KeyRun | KeyUnion:
        """Return the shortest run that holds every match: by coins, categories, or all."""
        index = self._index
        if query.coins is not None:
            return index.by_coin.span(query.coins, query.window)
        if query.categories is not None:
            return index.by_category.span(query.categories, query.window)
        return index.by_date.span(query.window)

    def _filter_of(self, query: EventQuery) -> EventFilter | None:
        """Return the test for the filters that the run does not apply, or None."""
        tests: list[EventFilter] = []
        if query.coins is not None and query.categories is not None:
            tagged = query.categories
            tests.append(lambda event: not tagged.isdisjoint(_categories_of(event)))
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
        span: KeyRun | KeyUnion,
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
    of_coin: dict[str, list[StoredEvent]] = {}
    for event in events:
        for slug in event.coins:
            of_coin.setdefault(slug, []).append(event)
    counters: dict[str, Counters] = {}
    for slug, linked in of_coin.items():
        scores = (event.impact for event in linked if event.impact is not None)
        major = sum(event.is_major for event in linked)
        counters[slug] = Counters(len(linked), major, max(scores, default=None))
    return counters
