"""The rows that every server of the run serves: what one key of the sandbox sees at one time.

`PlainRows` holds them as a plain program would: sorted lists, bisection, a dict, a scan. The bare
handler serves from it, and the workloads are drawn from it. Timestamps are text, whole seconds, so
they sort as text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from catalog.contract.plans import ENTERPRISE, find_plan_window, find_upcoming_window
from catalog.sandbox.history import SandboxHistory
from catalog.server.catalog_store import CoinQuery, EventQuery
from catalog.server.gating import project_coin, project_event

SEED: Final = 1
NOW: Final = datetime(2026, 11, 1, 12, tzinfo=UTC)
"""The catalog clock of the run; the plan of its key lags by a minute."""
LONGEST_EVENT: Final = timedelta(days=60)
"""No event lasts longer: every peer may use it to find those begun before a range."""
Key = tuple[str, str]
"""Date and id."""
Row = dict[str, Any]


class Rows(msgspec.Struct, frozen=True):
    """Every live event by date and id, every coin by rank and slug, as the JSON has them."""

    events: list[Row]
    coins: list[Row]
    category_ids: dict[str, str]
    """By name: a filter uses the id, and an event shows the name."""

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, path: Path) -> "Rows":
        return msgspec.msgpack.decode(path.read_bytes(), type=cls)


def read_sandbox_rows() -> Rows:
    """Return all that the key of the run sees.

    Raises:
        ValueError: an event outlasts `LONGEST_EVENT`, so that a peer would miss it.
    """
    store, seen_at = (
        SandboxHistory(SEED, 1.0).at(NOW),
        NOW - timedelta(seconds=ENTERPRISE.freshness_s),
    )
    events = [*store.iter_events(EventQuery(seen_at, find_plan_window(ENTERPRISE, NOW)))]
    for event in events:
        if event.date_end is not None and event.date_end - event.date > LONGEST_EVENT:
            raise ValueError(f"event {event.id} lasts longer than {LONGEST_EVENT}")
    query = CoinQuery(seen_at, find_upcoming_window(ENTERPRISE, NOW))
    coins = store.coins(query, after=None, limit=1_000_000).rows
    return Rows(
        events=[msgspec.to_builtins(project_event(event, ENTERPRISE)) for event in events],
        coins=[msgspec.to_builtins(project_coin(coin, ENTERPRISE)) for coin in coins],
        category_ids={category.name: category.id for category in store.categories(seen_at)},
    )


@dataclass(frozen=True, slots=True)
class Found:
    rows: list[Row]
    total: int
    after: Key | None = None
    """The key after which the next page starts, if there is one."""


class _DatedKeys:
    """Keys in order, and separately those of events of several days."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._long: list[tuple[str, str, str]] = []

    def add(self, event: Row) -> None:
        """Add an event; events arrive in order."""
        self._keys.append((event["date"], event["id"]))
        if event["dateEnd"] is not None:
            self._long.append((event["date"], event["id"], event["dateEnd"]))

    def find_between(self, lower: str, upper: str) -> list[Key]:
        keys, long = self._keys, self._long
        begun_from = (date.fromisoformat(lower) - LONGEST_EVENT).isoformat()
        begun = long[bisect_left(long, (begun_from,)) : bisect_left(long, (lower,))]
        head = [(start, event_id) for start, event_id, end in begun if end >= lower]
        return (
            head + keys[bisect_left(keys, (lower,)) : bisect_right(keys, (last_second(upper), "~"))]
        )


class PlainRows:
    """Searches rows in memory."""

    def __init__(self, rows: Rows) -> None:
        self._events = {event["id"]: event for event in rows.events}
        self._texts = [(search_text(coin), coin) for coin in rows.coins]
        self._all = _DatedKeys()
        self.by_coin: dict[str, _DatedKeys] = {}
        self.by_category: dict[str, _DatedKeys] = {}
        for event in rows.events:
            self._all.add(event)
            for coin in event["coins"]:
                self.by_coin.setdefault(coin["slug"], _DatedKeys()).add(event)
            for category in event["categories"]:
                category_id = rows.category_ids[category]
                self.by_category.setdefault(category_id, _DatedKeys()).add(event)

    def find_page(
        self,
        lower: str,
        upper: str,
        *,
        coins: Iterable[str] = (),
        categories: Iterable[str] = (),
        after: Key | None = None,
        limit: int,
    ) -> Found:
        """Return a page of the events that overlap the days from one to another."""
        named = [self.by_coin[slug] for slug in coins if slug in self.by_coin]
        named += [self.by_category[name] for name in categories if name in self.by_category]
        lists = [dated.find_between(lower, upper) for dated in named or [self._all]]
        keys = lists[0] if len(lists) == 1 else sorted({key for keys in lists for key in keys})
        first = 0 if after is None else bisect_right(keys, after)
        page = keys[first : first + limit]
        rows = [self._events[event_id] for _, event_id in page]
        return Found(rows, len(keys), page[-1] if len(keys) > first + limit else None)

    def get_event(self, event_id: str) -> Row | None:
        return self._events.get(event_id)

    def search_coins(self, q: str, *, limit: int) -> Found:
        found = [coin for text, coin in self._texts if q in text]
        return Found(found[:limit], len(found))


def search_text(coin: Row) -> str:
    """Return the text in which a coin search looks."""
    return f"{coin['name']}\n{coin['symbol']}".casefold()


def last_second(day: str) -> str:
    """Return the last second of a day; the rows have whole seconds."""
    return day + "T23:59:59Z"
