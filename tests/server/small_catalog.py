"""A hand-made catalog on the real server: a few events, each on a boundary of a rule."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from catalog.contract.plans import PLANS
from catalog.server.accounts import Grant, KeyRing, UsageBook, key_digest
from catalog.server.app import ServerOptions, ServerParts, build_app
from catalog.server.hosting import HostedApp
from catalog.server.memory_view import CoinBook, EventIndex, MemoryView
from catalog.server.routes import CursorSigner
from catalog.server.store import (
    CatalogChange,
    CatalogStore,
    StoredCategory,
    StoredCoin,
    StoredEvent,
)
from tests.hangs import HANGS_AFTER_S

NOW = datetime(2026, 6, 15, 10, 0, tzinfo=UTC)
TODAY = datetime(2026, 6, 15, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
CURSORS = CursorSigner(b"a secret of the tests, and only theirs")

CATEGORIES = (
    StoredCategory("release", "Release"),
    StoredCategory("airdrop", "Airdrop"),
    StoredCategory("fork", "Hard Fork"),
)


def coin(slug: str, rank: int | None, *, tracked: bool = True, name: str = "") -> StoredCoin:
    return StoredCoin(
        slug, slug[:3], name or slug.title(), rank, tracked, f"https://i.example/{slug}"
    )


COINS = (
    coin("first", 1),
    coin("hundredth", 100),
    coin("next", 101, tracked=False),
    coin("unranked", None),
)


def event(event_id: str, date: datetime = TODAY + DAY, **fields: Any) -> StoredEvent:
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
        categories=("release", "fork"),
        coins=("first", "hundredth"),
        impact=6.5,
        impact_summary="It matters.",
        source_url="https://source.example/1",
        snapshot_url="https://snapshot.example/1.png",
        last_verified_at=datetime(2026, 5, 3, tzinfo=UTC),
        created_at=datetime(2026, 5, 1, tzinfo=UTC),
        updated_at=datetime(2026, 5, 2, tzinfo=UTC),
    )
    return replace(made, **fields)


def view(
    events: Sequence[StoredEvent] = (),
    *,
    cancelled: Mapping[str, datetime] | None = None,
    coins: Sequence[StoredCoin] = COINS,
) -> MemoryView:
    return MemoryView(
        EventIndex.of(events),
        coins=CoinBook(coins),
        categories=CATEGORIES,
        cancelled=dict(cancelled or {}),
    )


class TimedStore:
    """Views, each valid from an instant on; every requested instant is recorded."""

    def __init__(self, first: MemoryView) -> None:
        self.views: list[tuple[datetime, MemoryView]] = [(datetime(2016, 1, 1, tzinfo=UTC), first)]
        self.requested: list[datetime] = []
        self.identity = "shelf"

    def then(self, at: datetime, later: MemoryView) -> "TimedStore":
        self.views.append((at, later))
        return self

    def at(self, instant: datetime) -> MemoryView:
        self.requested.append(instant)
        return next(found for since, found in reversed(self.views) if since <= instant)

    def newest(self, instant: datetime) -> datetime:
        return instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        return ()


class ManualClock:
    """A clock that a test sets."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def grant(plan: str, key: str, **limits: Any) -> Grant:
    """Return a grant whose rate and export interval are never reached unless given."""
    declared = PLANS[plan]
    return Grant(
        meter_id=limits.pop("meter_id", key),
        account="tests",
        plan=declared,
        rate_per_s=limits.pop("rate_per_s", 1e6),
        burst=limits.pop("burst", 1_000_000),
        monthly_quota=limits.pop("monthly_quota", declared.monthly_quota),
        sha256=key_digest(key),
        export_interval_s=limits.pop("export_interval_s", 0.0),
        **limits,
    )


@dataclass
class Service:
    """A running server and its client."""

    client: httpx.Client
    store: TimedStore
    clock: ManualClock
    usage: UsageBook
    parts: ServerParts

    def get(self, path: str, key: str = "elite", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(path, headers={"x-api-key": key, **named})

    def ids(self, path: str, key: str = "elite") -> list[str]:
        answer = self.get(path, key)
        assert answer.status_code == 200, answer.text
        return [row["id"] for row in answer.json()["data"]]

    def pages(self, path: str, key: str = "elite") -> list[dict[str, Any]]:
        """Follow the cursors to the end; return every page."""
        join = "&" if "?" in path else "?"
        pages = [self.get(path, key).json()]
        while pages[-1]["meta"]["cursor"] is not None:
            following = f"{path}{join}cursor={pages[-1]['meta']['cursor']}"
            pages.append(self.get(following, key).json())
            assert len(pages) < 500, "the cursors never end"
        return pages

    def all_ids(self, path: str, key: str = "elite") -> list[str]:
        return [row["id"] for page in self.pages(path, key) for row in page["data"]]


@contextmanager
def keep_in_memory(store: TimedStore) -> Iterator[CatalogStore]:
    yield store


keep: Callable[[TimedStore], AbstractContextManager[CatalogStore]] = keep_in_memory
"""Returns the store that a server uses. The fixture `kept_in` replaces it."""


@contextmanager
def serving(
    store: TimedStore | MemoryView,
    *,
    keys: Sequence[Grant] = (),
    ring: KeyRing | None = None,
    options: ServerOptions | None = None,
    now: datetime = NOW,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> Iterator[Service]:
    versions = store if isinstance(store, TimedStore) else TimedStore(store)
    clock = ManualClock(now)
    named = [grant(plan, plan) for plan in PLANS]
    with keep(versions) as kept:
        parts = ServerParts(
            store=kept,
            keys=ring or KeyRing(fixed=[*named, *keys]),
            usage=UsageBook(),
            cursors=CURSORS,
            instant_of=lambda scope: clock.now,
            options=options or ServerOptions(),
            monotonic_ns=monotonic_ns,
        )
        # Without `verify=False` each client reads the certificates of the machine, 20 ms.
        with (
            HostedApp(build_app(parts)) as hosted,
            # A warehouse is merged inside a request.
            httpx.Client(base_url=hosted.base_url, verify=False, timeout=HANGS_AFTER_S) as client,
        ):
            yield Service(client, versions, clock, parts.usage, parts)
