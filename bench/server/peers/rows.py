"""The rows that every server in the run serves: one state of the sandbox's world.

Belongs here: the rows in the form of the wire, once, for all peers. Does not: how a peer
stores them. Instants are text of the wire, whole seconds, so they sort as text.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from catalog.contract.plans import ENTERPRISE, plan_window, upcoming_window
from catalog.contract.records import Coin, Event
from catalog.sandbox.world.world import World
from catalog.sandbox.world_store import SandboxStore
from catalog.server.gating import ViewNames, shown_coin, shown_event
from catalog.server.memory_view import MemoryView
from catalog.server.store import CoinQuery, EventQuery

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


@dataclass(frozen=True)
class State:
    """The state of the world that the run serves, as a view and as rows."""

    view: MemoryView

    @classmethod
    def of_run(cls) -> "State":
        store = SandboxStore(World(SEED))
        return cls(store.at(NOW - timedelta(seconds=ENTERPRISE.freshness_s)))

    @cached_property
    def rows(self) -> Rows:
        """Return the whole view as the key of the run sees it.

        Raises:
            ValueError: an event outlasts `LONGEST_EVENT`, so that a peer would miss it.
        """
        view, names = self.view, ViewNames(self.view, self.view.categories())
        events = list(view.iter_events(EventQuery(plan_window(ENTERPRISE, NOW))))
        for event in events:
            if event.date_end is not None and event.date_end - event.date > LONGEST_EVENT:
                raise ValueError(f"event {event.id} lasts longer than {LONGEST_EVENT}")
        upcoming = upcoming_window(ENTERPRISE, NOW)
        coins = view.coins(CoinQuery(), after=None, limit=1_000_000).coins
        return Rows(
            events=tuple(shown_event(event, ENTERPRISE, names) for event in events),
            coins=tuple(shown_coin(coin, ENTERPRISE, view, upcoming) for coin in coins),
            category_ids={category.name: category.id for category in view.categories()},
        )
