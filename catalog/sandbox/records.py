"""The records in which the synthetic catalog answers.

Belongs here: what a coin, a category, an event, a change, a version is. Does not: how they come
about. Instants are aware, UTC, in whole seconds.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TrueCoin:
    """A coin on a day. `rank` is None when unranked."""

    slug: str
    symbol: str
    name: str
    rank: int | None
    tracked: bool
    icon_url: str


@dataclass(frozen=True, slots=True)
class TrueCategory:
    """An editorial category."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class TrueEvent:
    """The whole content of an event. Categories by id, coins by slug, impact from 0 to 10."""

    id: str
    slug: str
    title: str
    description: str | None
    displayed_date: str
    date: datetime
    date_end: datetime | None
    date_type: str
    is_estimated: bool
    categories: tuple[str, ...]
    coins: tuple[str, ...]
    impact: float | None
    impact_summary: str | None
    source_url: str | None
    snapshot_url: str | None
    last_verified_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to an event; several kinds when it happened at once."""

    at: datetime
    event_id: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """An event between two of its changes; `event` is its last content when not scheduled."""

    known_from: datetime
    known_to: datetime | None
    status: str
    event: TrueEvent
    kinds: tuple[str, ...]
