"""The small catalog in a warehouse, served by the store of the mirror.

Each view of a `TimedStore` is landed at its time and merged, as a pull of a service with this
catalog would be. All answers then come from SQL. The server around it keeps the rules of the
service, its lag and its daily snapshot, so that the tests of the server hold unchanged; the mirror
switches both off (`ServerParts.lags`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from catalog.contract.plans import Window
from catalog.server.memory_view import MemoryView
from catalog.server.store import CatalogChange, CatalogView, CoinQuery, EventQuery
from pipeline.mirror.mirror_store import MirrorStore
from pipeline.mirror.version_feed import VersionFeed
from tests.history.stories.disk import without_syncs
from tests.server import plain_model
from tests.server.small_catalog import TimedStore
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

ALL_DATES = Window(datetime(2016, 1, 1, tzinfo=UTC), None)
MICROSECOND = timedelta(microseconds=1)
WITHIN_A_SECOND = timedelta(milliseconds=1)
"""Views of the same second are landed a microsecond apart, and requested after all of them."""
EVERYTHING = 1_000_000


class PublishedStore:
    """`CatalogStore` over the warehouse; a view that is added later is merged and followed."""

    def __init__(self, timed: TimedStore, root: Path) -> None:
        self._timed = timed
        self._landed = list[datetime]()
        self._merged_views = 0
        self._shown = set[str]()
        self.home = Home(root / "home")
        self._land_new()
        self._feed = VersionFeed(root / "changes.sqlite")
        self._store = MirrorStore(
            self.home.warehouse, self._feed, lambda: datetime.now(UTC), events_in_memory=0
        )

    @property
    def identity(self) -> str:
        return f"{self._timed.identity} {self._store.identity}"

    def at(self, instant: datetime) -> CatalogView:
        self._timed.requested.append(instant)
        if self._land_new():
            views = self._store.follow()
            assert views is not None, self._store.trouble
            self._store.serve(views)
        return self._store.at(instant + WITHIN_A_SECOND)

    def newest(self, instant: datetime) -> datetime:
        return instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        return ()

    def close(self) -> None:
        self._feed.close()

    def _land_new(self) -> bool:
        views = sorted(self._timed.views, key=lambda pair: pair[0])
        for since, view in views[len(self._landed) :]:
            self._land(view, since + self._landed.count(since) * MICROSECOND)
            self._landed.append(since)
        is_new = len(views) > self._merged_views
        if is_new:
            merge(self.home)
            self._merged_views = len(views)
        return is_new

    def _land(self, view: MemoryView, at: datetime) -> None:
        events = [*view.iter_events(EventQuery(ALL_DATES))]
        coins = view.coins(CoinQuery(), after=None, limit=EVERYTHING).coins
        cancelled = view.cancellations(
            since=datetime(2016, 1, 1, tzinfo=UTC), after=None, limit=EVERYTHING
        ).entries
        self._page("categories", at, [{"id": c.id, "name": c.name} for c in view.categories()])
        self._page("coins", at, [coin_row(coin) for coin in coins])
        scope = Scope(lower=ALL_DATES.lower, upper=datetime(2100, 1, 1, tzinfo=UTC))
        self._page("events", at, [plain_model.shown(event, "elite") for event in events], scope)
        rows = [
            {"id": entry.id, "cancelledAt": plain_model.text(entry.cancelled_at)}
            for entry in cancelled
        ]
        self._page("cancellations", at, rows, Scope(since=ALL_DATES.lower))
        shown = {event.id for event in events}
        for event_id in sorted(self._shown - shown - {entry.id for entry in cancelled}):
            body = json.dumps({"error": {"code": "not_found", "message": "none"}}).encode()
            self._body("event", at, body, Scope(event_id=event_id), status=404)
        self._shown = shown

    def _page(self, feed: Feed, at: datetime, rows: list[Any], scope: Scope | None = None) -> None:
        page = {"data": rows, "meta": {"total": len(rows), "limit": 100, "cursor": None}}
        self._body(feed, at, json.dumps(page).encode(), scope or Scope())

    def _body(self, feed: Feed, at: datetime, body: bytes, scope: Scope, status: int = 200) -> None:
        pull = Pull(
            feed=feed,
            scope=scope,
            plan="enterprise",
            source="small catalog",
            observed_at=at,
            content_at=at,
            landed_at=at,
            requests=1,
        )
        self.home.landing.land(pull, [(body, None)], status=status)


def coin_row(coin: Any) -> dict[str, Any]:
    return {
        "slug": coin.slug,
        "symbol": coin.symbol,
        "name": coin.name,
        "rank": coin.rank,
        "tracked": coin.tracked,
        "iconUrl": coin.icon_url,
        "upcomingCount": 0,
        "majorCount": 0,
        "peakImpact": None,
    }


@contextmanager
def published(timed: TimedStore) -> Iterator[PublishedStore]:
    with TemporaryDirectory(prefix="small-catalog-") as root, without_syncs():
        store = PublishedStore(timed, Path(root))
        try:
            yield store
        finally:
            store.close()
