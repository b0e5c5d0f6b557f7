"""The live events of one state, in the orders in which they are read.

An event on `[date, dateEnd]` matches a window that it overlaps, so an event that began before the
window may match too. Those are few: they have their own list, which is scanned; the others are
found by bisection. An index never changes; `edited` returns a new one.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter

from catalog.contract.windows import Window
from catalog.server.store import DateKey, ImpactKey, StoredEvent, date_key, impact_key

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
        return chain(self._head, islice(self._keys, self._first, self._last))

    def after(self, key: DateKey | None, limit: int) -> list[DateKey]:
        """Return at most `limit` keys strictly after `key`."""
        if key is None:
            head, first = self._head, self._first
        else:
            head = self._head[bisect_right(self._head, key) :]
            first = max(self._first, bisect_right(self._keys, key))
        taken = head[:limit]
        return taken + self._keys[first : max(first, min(self._last, first + limit - len(taken)))]


EMPTY_RUN = KeyRun([])


class TimelineBuilder:
    """Takes events in the order of their keys."""

    __slots__ = ("_keys", "_long")

    def __init__(self) -> None:
        self._keys: list[DateKey] = []
        self._long: list[LongKey] = []

    def add(self, key: DateKey, long: LongKey | None) -> None:
        self._keys.append(key)
        if long is not None:
            self._long.append(long)

    def timeline(self) -> "Timeline":
        return Timeline(self._keys, self._long)


class Timeline:
    """Keys of events sorted by date and id; events of several days also in a list of their own."""

    __slots__ = ("_keys", "_long", "_longest_s")

    def __init__(
        self, keys: list[DateKey], long: list[LongKey], *, longest_s: float | None = None
    ) -> None:
        self._keys = keys
        self._long = long
        self._longest_s = (
            max((end - start for start, _, end in long), default=0.0)
            if longest_s is None
            else longest_s
        )

    def __len__(self) -> int:
        return len(self._keys)

    def edited(self, *, removed: Iterable[StoredEvent], added: Iterable[StoredEvent]) -> "Timeline":
        """Return a timeline without some events and with some others."""
        keys, long, longest_s = self._keys.copy(), self._long.copy(), self._longest_s
        for event in removed:
            del keys[bisect_left(keys, date_key(event))]
            if event.date_end is not None:
                del long[bisect_left(long, long_key(event))]
        for event in added:
            insort(keys, date_key(event))
            if event.date_end is not None:
                start, _, end = long_key(event)
                longest_s = max(longest_s, end - start)
                insort(long, long_key(event))
        return Timeline(keys, long, longest_s=longest_s)

    def span(self, window: Window) -> KeyRun:
        """Return the events that overlap the window, in order."""
        if window.empty:
            return EMPTY_RUN
        lower = window.lower.timestamp()
        first = bisect_left(self._keys, (lower, ""))
        last = None
        if window.upper is not None:
            last = bisect_right(self._keys, (window.upper.timestamp(), _AFTER_ANY_ID))
        begun = self._long[
            bisect_left(self._long, (lower - self._longest_s,)) : bisect_left(self._long, (lower,))
        ]
        head = [(start, event_id) for start, event_id, end in begun if end >= lower]
        return KeyRun(self._keys, first=first, last=last, head=head)


def merged_run(spans: Iterable[KeyRun]) -> KeyRun:
    """Return the union of several spans; an event in two of them is there once."""
    return KeyRun(sorted({key for span in spans for key in span}))


def long_key(event: StoredEvent) -> LongKey:
    end = event.date if event.date_end is None else event.date_end
    return (event.date.timestamp(), event.id, end.timestamp())


@dataclass(frozen=True, slots=True)
class EventIndex:
    """An index that never changes; `edited` shares the parts that stay the same."""

    events: dict[str, StoredEvent]
    texts: dict[str, tuple[str, str]]
    """Title and description of each, casefolded."""
    by_date: Timeline
    by_coin: dict[str, Timeline]
    by_category: dict[str, Timeline]
    by_impact: list[ImpactKey]

    @classmethod
    def of(cls, events: Iterable[StoredEvent]) -> "EventIndex":
        by_id = {event.id: event for event in events}
        whole = TimelineBuilder()
        by_coin: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        by_category: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        keyed = sorted(((date_key(event), event) for event in by_id.values()), key=itemgetter(0))
        for key, event in keyed:
            long = None if event.date_end is None else long_key(event)
            whole.add(key, long)
            for slug in event.coins:
                by_coin[slug].add(key, long)
            for category in event.categories:
                by_category[category].add(key, long)
        return cls(
            events=by_id,
            texts={event.id: _text(event) for event in by_id.values()},
            by_date=whole.timeline(),
            by_coin={slug: linked.timeline() for slug, linked in by_coin.items()},
            by_category={name: tagged.timeline() for name, tagged in by_category.items()},
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
            by_coin=_edited_postings(self.by_coin, removed, added, lambda event: event.coins),
            by_category=_edited_postings(
                self.by_category, removed, added, lambda event: event.categories
            ),
            by_impact=by_impact,
        )


def _text(event: StoredEvent) -> tuple[str, str]:
    return event.title.casefold(), (event.description or "").casefold()


def _edited_postings(
    postings: dict[str, Timeline],
    removed: list[StoredEvent],
    added: list[StoredEvent],
    names: Callable[[StoredEvent], tuple[str, ...]],
) -> dict[str, Timeline]:
    removed_by_name: dict[str, list[StoredEvent]] = {}
    added_by_name: dict[str, list[StoredEvent]] = {}
    for event in removed:
        for name in names(event):
            removed_by_name.setdefault(name, []).append(event)
    for event in added:
        for name in names(event):
            added_by_name.setdefault(name, []).append(event)
    edited = postings.copy()
    for name in removed_by_name.keys() | added_by_name.keys():
        timeline = edited.get(name) or Timeline([], [])
        edited[name] = timeline.edited(
            removed=removed_by_name.get(name, ()), added=added_by_name.get(name, ())
        )
    return edited
