"""Events in the order of the events list, and the span of them that overlaps a window.

An event on `[date, dateEnd]` matches a window that it overlaps, so one that began before
the window may belong to it. Those are few: they are kept apart and looked through, and the
rest is found by bisection. Never changed once made; `edited` gives a new one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from catalog.contract.windows import Window
from catalog.server.store import DateKey, StoredEvent, date_key

_AFTER_ANY_ID = "\U0010ffff"
LongKey = tuple[float, str, float]
"""Epoch seconds of the date, id, epoch seconds of the end: an event of several days."""


class Span:
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
        """Return at most `limit` keys that come strictly after `key`."""
        if key is None:
            head, first = self._head, self._first
        else:
            head = self._head[bisect_right(self._head, key) :]
            first = max(self._first, bisect_right(self._keys, key))
        taken = head[:limit]
        return taken + self._keys[first : max(first, min(self._last, first + limit - len(taken)))]


EMPTY_SPAN = Span([])


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
    """Keys of events sorted by date and id; those of several days also by themselves."""

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

    def edited(self, *, gone: Iterable[StoredEvent], come: Iterable[StoredEvent]) -> "Timeline":
        """Return a timeline without some events and with some others."""
        keys, long, longest_s = self._keys.copy(), self._long.copy(), self._longest_s
        for event in gone:
            del keys[bisect_left(keys, date_key(event))]
            if event.date_end is not None:
                del long[bisect_left(long, long_key(event))]
        for event in come:
            insort(keys, date_key(event))
            if event.date_end is not None:
                start, _, end = long_key(event)
                longest_s = max(longest_s, end - start)
                insort(long, long_key(event))
        return Timeline(keys, long, longest_s=longest_s)

    def span(self, window: Window) -> Span:
        """Return the events that overlap the window, in order."""
        if window.empty:
            return EMPTY_SPAN
        lower = window.lower.timestamp()
        first = bisect_left(self._keys, (lower, ""))
        last = None
        if window.upper is not None:
            last = bisect_right(self._keys, (window.upper.timestamp(), _AFTER_ANY_ID))
        begun = self._long[
            bisect_left(self._long, (lower - self._longest_s,)) : bisect_left(self._long, (lower,))
        ]
        head = [(start, event_id) for start, event_id, end in begun if end >= lower]
        return Span(self._keys, first=first, last=last, head=head)


def merged_span(spans: Iterable[Span]) -> Span:
    """Return the union of several spans; an event in two of them is there once."""
    return Span(sorted({key for span in spans for key in span}))


def long_key(event: StoredEvent) -> LongKey:
    end = event.date if event.date_end is None else event.date_end
    return (event.date.timestamp(), event.id, end.timestamp())
