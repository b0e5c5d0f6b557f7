"""The rows as a plain program would hold them: sorted lists, bisection, a dict, a scan.

What the bare handlers serve, and what the workloads are drawn from.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Generic, TypeVar

from bench.server.peers.rows import LONGEST_EVENT

RowT = TypeVar("RowT")
Key = tuple[str, str]
"""Date and id."""


@dataclass(frozen=True, slots=True)
class Found(Generic[RowT]):
    rows: Sequence[RowT]
    total: int
    after: Key | None = None
    """The key after which the next page starts, if there is one."""


class _Dated:
    """Keys in order, and separately those of events of several days."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._long: list[tuple[str, str, str]] = []

    def add(self, event: dict[str, Any]) -> None:
        """Add an event; events arrive in order."""
        self._keys.append((event["date"], event["id"]))
        if event["dateEnd"] is not None:
            self._long.append((event["date"], event["id"], event["dateEnd"]))

    def between(self, lower: str, upper: str) -> list[Key]:
        keys, long = self._keys, self._long
        begun_from = (date.fromisoformat(lower) - LONGEST_EVENT).isoformat()
        begun = long[bisect_left(long, (begun_from,)) : bisect_left(long, (lower,))]
        head = [(start, event_id) for start, event_id, end in begun if end >= lower]
        return head + keys[bisect_left(keys, (lower,)) : bisect_right(keys, (end_of(upper), "~"))]


class PlainRows(Generic[RowT]):
    """Searches `events` and `coins`, and returns the row at the same position in `shown`."""

    def __init__(
        self,
        events: Sequence[dict[str, Any]],
        coins: Sequence[dict[str, Any]],
        *,
        category_ids: Mapping[str, str],
        shown_events: Sequence[RowT],
        shown_coins: Sequence[RowT],
    ) -> None:
        self._shown = {event["id"]: row for event, row in zip(events, shown_events, strict=True)}
        self._texts = [
            (f"{coin['name']}\n{coin['symbol']}".casefold(), row)
            for coin, row in zip(coins, shown_coins, strict=True)
        ]
        self._all = _Dated()
        self.by_coin: dict[str, _Dated] = {}
        self.by_category: dict[str, _Dated] = {}
        for event in events:
            self._all.add(event)
            for coin in event["coins"]:
                self.by_coin.setdefault(coin["slug"], _Dated()).add(event)
            for category in event["categories"]:
                self.by_category.setdefault(category_ids[category], _Dated()).add(event)

    def page(
        self,
        lower: str,
        upper: str,
        *,
        coins: Iterable[str] = (),
        categories: Iterable[str] = (),
        after: Key | None = None,
        limit: int,
    ) -> Found[RowT]:
        """Return a page of the events that overlap the days from one to another."""
        named = [self.by_coin[slug] for slug in coins if slug in self.by_coin]
        named += [self.by_category[name] for name in categories if name in self.by_category]
        lists = [dated.between(lower, upper) for dated in named or [self._all]]
        keys = lists[0] if len(lists) == 1 else sorted({key for keys in lists for key in keys})
        first = 0 if after is None else bisect_right(keys, after)
        page = keys[first : first + limit]
        more = len(keys) > first + limit
        rows = [self._shown[event_id] for _, event_id in page]
        return Found(rows, len(keys), page[-1] if more else None)

    def event(self, event_id: str) -> RowT | None:
        return self._shown.get(event_id)

    def search(self, q: str, *, limit: int) -> Found[RowT]:
        found = [row for text, row in self._texts if q in text]
        return Found(found[:limit], len(found))


def end_of(day: str) -> str:
    """Return the last second of a day; the rows have whole seconds."""
    return day + "T23:59:59Z"
