"""The rows that every server in the run serves: one state of the sandbox's world.

Belongs here: the rows in the form of the wire, once, for all peers. Does not: how a peer
stores them. Instants are text of the wire, whole seconds, so they sort as text.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from catalog.contract.plans import ENTERPRISE, plan_window, upcoming_window
from catalog.contract.records import Coin, Event
from catalog.sandbox.history import SandboxHistory
from catalog.server.catalog_store import CoinQuery, EventQuery
from catalog.server.gating import shown_coin, shown_event
from catalog.server.sql_store import SqlStore

SEED = 1
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
"""The catalog clock of the run; the plan of its key lags by a minute."""
LONGEST_EVENT = timedelta(days=60)
"""No event lasts longer: every peer may use it to find those begun before a range."""


class Rows(msgspec.Struct, frozen=True):
    """Every live event by date and id, every coin by rank and slug, in the form of the JSON."""

    events: tuple[Event, ...]
    coins: tuple[Coin, ...]
    category_ids: dict[str, str]
    """By name: a filter uses the id, and an event shows the name."""

    def category_id(self, name: str) -> str:
        return self.category_ids[name]

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, path: Path) -> "Rows":
        return msgspec.msgpack.decode(path.read_bytes(), type=cls)

    def event_dicts(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(event) for event in self.events]

    def coin_dicts(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(coin) for coin in self.coins]


SEEN_AT = NOW - timedelta(seconds=ENTERPRISE.freshness_s)


def store_of_run() -> SqlStore:
    return SandboxHistory(SEED, 1.0).at(NOW)


def rows_of_run() -> Rows:
    """Return all that the key of the run sees.

    Raises:
        ValueError: an event outlasts `LONGEST_EVENT`, so that a peer would miss it.
    """
    store = store_of_run()
    events = [*store.iter_events(EventQuery(SEEN_AT, plan_window(ENTERPRISE, NOW)))]
    for event in events:
        if event.date_end is not None and event.date_end - event.date > LONGEST_EVENT:
            raise ValueError(f"event {event.id} lasts longer than {LONGEST_EVENT}")
    query = CoinQuery(SEEN_AT, upcoming_window(ENTERPRISE, NOW))
    coins = store.coins(query, after=None, limit=1_000_000).rows
    return Rows(
        events=tuple(shown_event(event, ENTERPRISE) for event in events),
        coins=tuple(shown_coin(coin, ENTERPRISE) for coin in coins),
        category_ids={category.name: category.id for category in store.categories(SEEN_AT)},
    )
