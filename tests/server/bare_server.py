"""The application over a store of a few rows, asked without a socket."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from starlette.testclient import TestClient

from catalog.contract.plans import PLANS, Plan, Window
from catalog.contract.records import Cancellation, Category, Coin, EventCoin, encode_rows
from catalog.server.accounts import Grant, KeyBook, UsageBook, make_grant
from catalog.server.app import ServerOptions, ServerParts, build_app
from catalog.server.catalog_store import (
    CoinQuery,
    EventQuery,
    StoredEvent,
    StoredVersion,
    StorePage,
)
from catalog.server.gating import project_event

NOW = datetime(2026, 6, 15, 10, 0, tzinfo=UTC)


class ManualClock:
    """A clock that a test sets."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def grant(plan: str, key: str, **limits: Any) -> Grant:
    """Return a grant whose rate and export interval are never reached unless given."""
    usual = {"rate_per_s": 1e6, "burst": 1_000_000, "export_interval_s": 0.0}
    return make_grant(PLANS[plan], key, "tests", **usual | limits)


COINS = {"first": 1, "hundredth": 100, "next": 101, "unranked": None}
"""Ranks by slug."""


def event(event_id: str, date: datetime = NOW, **fields: Any) -> StoredEvent:
    made = StoredEvent(
        id=event_id,
        slug=f"slug-{event_id}",
        title=f"Title of {event_id}",
        description=f"Description of {event_id}",
        displayed_date="16 Jun",
        date=date,
        date_end=None,
        date_type="date",
        is_estimated=False,
        categories=("Release", "Hard Fork"),
        coins=(linked("first"), linked("hundredth")),
        impact=6.5,
        impact_summary="It matters.",
        source_url="https://source.example/1",
        snapshot_url="https://snapshot.example/1.png",
        last_verified_at=datetime(2026, 5, 3, tzinfo=UTC),
        created_at=datetime(2026, 5, 1, tzinfo=UTC),
        updated_at=datetime(2026, 5, 2, tzinfo=UTC),
    )
    return replace(made, **fields)


def linked(slug: str) -> EventCoin:
    return EventCoin(slug=slug, symbol=slug[:3], name=slug.title())


class BareStore:
    """A store of these events whatever the query, which it records with its time."""

    identity = "bare"

    def __init__(self, *events: StoredEvent) -> None:
        self._events = events
        self.queries: list[Any] = []
        self.times: list[datetime] = []

    def _record(self, query: Any) -> None:
        self.queries.append(query)
        self.times.append(query.ts)

    def events(self, query: EventQuery, *, after: object, limit: int) -> StorePage[StoredEvent]:
        self._record(query)
        return StorePage(self._events[:limit], len(self._events) > limit, len(self._events))

    def iter_csv(self, query: EventQuery, plan: Plan) -> Iterator[bytes]:
        yield encode_rows(project_event(event, plan) for event in self.iter_events(query))

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        self._record(query)
        yield from self._events

    def event(self, event_id: str, ts: datetime) -> StoredVersion | None:
        self.times.append(ts)
        status = event_id if event_id in ("cancelled", "withdrawn") else "scheduled"
        at = NOW if event_id == "cancelled" else None
        for found in self._events:
            if found.id == event_id:
                return StoredVersion(*(1, event_id, 1, NOW, None, status, at, (), (), True, found))
        return None

    def coins(self, query: CoinQuery, *, after: object, limit: int) -> StorePage[Coin]:
        self._record(query)
        found = [self._coin(slug) for slug in COINS]
        return StorePage(found[:limit], len(found) > limit, len(found))

    def coin(self, slug: str, ts: datetime, upcoming: Window) -> Coin | None:
        self.times.append(ts)
        return self._coin(slug) if slug in COINS else None

    def _coin(self, slug: str) -> Coin:
        icon_url = f"https://i.example/{slug}"
        return Coin(
            slug=slug,
            symbol=slug[:3],
            name=slug.title(),
            rank=COINS[slug],
            tracked=True,
            icon_url=icon_url,
            upcoming_count=4,
            major_count=2,
            peak_impact=9.5,
        )

    def ranks(self, slugs: Sequence[str], ts: datetime) -> dict[str, int | None]:
        return {slug: COINS[slug] for slug in slugs}

    def categories(self, ts: datetime) -> Sequence[Category]:
        self.times.append(ts)
        return [Category(id="release", name="Release")]

    def cancellations(
        self, ts: datetime, since: datetime, *, after: object, limit: int
    ) -> StorePage[Cancellation]:
        self.times.append(ts)
        return StorePage([Cancellation(id="gone", cancelled_at=NOW)], False, 1)

    def last_pull(self, ts: datetime) -> datetime:
        return ts


@dataclass
class BareServer:
    """The application, and a client of it."""

    client: TestClient
    store: Any
    clock: ManualClock
    usage: UsageBook

    def get(self, path: str, key: str = "elite", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(path, headers={"x-api-key": key, **named})


@contextmanager
def bare_server(
    *,
    keys: Sequence[Grant] = (),
    ring: KeyBook | None = None,
    store: Any = None,
    options: ServerOptions | None = None,
    now: datetime = NOW,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
    raises: bool = False,
    **parts: Any,
) -> Iterator[BareServer]:
    clock, usage, named = ManualClock(now), UsageBook(), [grant(plan, plan) for plan in PLANS]
    asked: Any = store or BareStore()
    app = build_app(
        ServerParts(
            store=lambda _: asked,
            keys=ring or KeyBook(fixed=[*named, *keys]),
            usage=usage,
            now=clock,
            options=options or ServerOptions(),
            monotonic_ns=monotonic_ns,
            **parts,
        )
    )
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=raises) as client:
        yield BareServer(client, asked, clock, usage)
