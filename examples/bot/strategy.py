"""A strategy without a source: it holds coins, and steps aside before big events."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class KnownEvent:
    """An event as it is known: its date is UTC, `impact` is None if it is unknown."""

    id: str
    title: str
    date: datetime | None
    coins: tuple[str, ...]
    impact: float | None
    is_scheduled: bool = True


@dataclass(frozen=True)
class Decision:
    """What to do with a coin from now on, and the event that is the reason."""

    at: datetime
    coin: str
    action: str
    because: str


@dataclass
class StepAside:
    """Leaves a coin while an event of it with a high impact is expected within some days."""

    coins: frozenset[str]
    within: timedelta = timedelta(days=7)
    least_impact: float = 7.5
    _events: dict[str, KnownEvent] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)

    def begin(self, at: datetime, known: Iterable[KnownEvent]) -> list[Decision]:
        """Take the catalog of the start."""
        self._events = {event.id: event for event in known if self.coins.intersection(event.coins)}
        return self._decide(at, self.coins, "the catalog")

    def on_change(self, at: datetime, event: KnownEvent) -> list[Decision]:
        """Take one event as it is known from now on."""
        before = self._events.get(event.id)
        self._events[event.id] = event
        touched = {*event.coins, *(before.coins if before else ())}
        return self._decide(at, self.coins & touched, event.id)

    def _decide(self, at: datetime, coins: frozenset[str], because: str) -> list[Decision]:
        decisions = []
        for coin in sorted(coins):
            is_close = any(self._is_close(event, coin, at) for event in self._events.values())
            if is_close != (coin in self._left):
                (self._left.add if is_close else self._left.discard)(coin)
                action = "leave" if is_close else "return"
                decisions.append(Decision(at, coin, action, because))
        return decisions

    def _is_close(self, event: KnownEvent, coin: str, at: datetime) -> bool:
        return (
            event.is_scheduled
            and event.date is not None
            and coin in event.coins
            and (event.impact or 0) >= self.least_impact
            and at <= event.date <= at + self.within
        )
