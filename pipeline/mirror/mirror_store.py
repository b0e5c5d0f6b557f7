"""The store of the mirror: the published file as it is now, and views of it at past times.

The events that are known now are in memory, up to a number; beyond it, and for past times, each
request queries the file. A publication is followed: its view is made first, and then replaces the
served view in one step. Requests in progress continue with the file that they began with.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

import duckdb

from almanac.errors import WarehouseError
from catalog.server.memory_view import EventIndex, MemoryView
from catalog.server.store import CancellationKey, CancellationSlice, CatalogChange, CatalogView
from pipeline.mirror.knowledge_routes import ChangePage, KnownChange
from pipeline.mirror.past_view import CancellationBook, PastViews
from pipeline.mirror.published_catalog import (
    CatalogVersion,
    FileSignature,
    KnownSpan,
    PublishedCatalog,
    file_signature,
    unservable,
)
from pipeline.mirror.pushed_changes import catalog_changes
from pipeline.mirror.version_feed import FeedPlace, VersionFeed

log = logging.getLogger(__name__)
EVENTS_IN_MEMORY: Final = 250_000
"""About 500 MB."""


class PublishedViews:
    """The views of one published file."""

    def __init__(self, path: Path, *, events_in_memory: int = EVENTS_IN_MEMORY) -> None:
        self.catalog = PublishedCatalog(path)
        self.bounds: KnownSpan = self.catalog.bounds
        last = self.bounds.last
        self._newest: CatalogView | None = None
        try:
            self._past = PastViews(self.catalog)
            if last is not None and self.bounds.events <= events_in_memory:
                self._newest = PublishedMemoryView(self.catalog, last)
        except (duckdb.Error, ValueError, OverflowError, OSError) as error:
            # Python can't hold each date that DuckDB can.
            self.catalog.close()
            raise unservable(path, error) from error

    def at(self, instant: datetime) -> CatalogView:
        """Return the view of a time: the same one until the next time something became known.

        From the last pull on, it is the view of the last pull.
        """
        last = self.bounds.last
        if last is not None and instant >= last:
            if self._newest is not None:
                return self._newest
            instant = last
        return self._past.at(instant)


class MirrorStore:
    """`CatalogStore` over a warehouse that is published again and again.

    `feed` keeps the order of the changes; `wall` is the machine's clock. Changes until
    `pushed_until` were pushed before, by a clock that may have been ahead.

    Raises:
        WarehouseError: the file is missing or can't be served.
        FeedUnusable: the feed can't be read.
    """

    def __init__(
        self,
        path: Path,
        feed: VersionFeed,
        wall: Callable[[], datetime],
        *,
        pushed_until: datetime | None = None,
        events_in_memory: int = EVENTS_IN_MEMORY,
    ) -> None:
        self._path = path
        self._feed = feed
        self._wall = wall
        self._events_in_memory = events_in_memory
        self._clocking = Lock()
        self._recording = False
        self._recorded_at = feed.last_recorded_at()
        self._pushed_until = max(wall(), self._recorded_at, pushed_until or self._recorded_at)
        self._served = self._open()
        self._served_since = wall()
        self._recorded = Event()
        self._is_behind = True
        self._refused: FileSignature | None = None
        self.trouble: str | None = None
        """Why the newest publication is not served, or its changes are not recorded."""

    @property
    def identity(self) -> str:
        return f"mirror {self._served.catalog.signature}"

    @property
    def bounds(self) -> KnownSpan:
        return self._served.bounds

    def never_known(self) -> frozenset[str]:
        return self._served.catalog.never_known

    def at(self, instant: datetime) -> CatalogView:
        return self._served.at(instant)

    def newest(self, instant: datetime) -> datetime:
        served = self._served
        last = served.bounds.last
        if last is not None and instant >= last:
            return last
        return served.catalog.last_pull(instant) or instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        """Return the changes that this mirror learned of in a time, by `pushed_until`.

        The changes of a publication have one time.

        Raises:
            FeedUnusable: the feed can't be read.
        """
        served = self._served.catalog
        recorded = self._feed.recorded_between(after, until)
        times = {(event_id, number): at for event_id, number, at in recorded}
        versions = served.versions(list(times))
        # A refold may have removed a version since.
        found = [versions[each] for each in times if each in versions]
        return [
            replace(change, at=times[change.event.id, change.version or 0])
            for change in catalog_changes(found, served)
        ]

    def pushed_until(self) -> datetime:
        """Return the time up to which `changes` is complete: the wall clock's.

        It stands while a publication is recorded and not served yet, and never goes back.
        """
        with self._clocking:
            if not self._recording:
                self._pushed_until = max(self._pushed_until, self._wall())
            return self._pushed_until

    def history(self, event_id: str, instant: datetime) -> list[CatalogVersion]:
        return self._served.catalog.history(event_id, instant)

    def changes_after(self, place: FeedPlace, *, until: datetime | None, limit: int) -> ChangePage:
        """Return the changes after a place; none while another publication is about to be served.

        Raises:
            ForeignPlace: the place is not one of this feed.
            FeedUnusable: the feed can't be read.
        """
        catalog = self._served.catalog
        page = self._feed.page(place, until=until, limit=limit, published_at=catalog.published_at)
        versions = catalog.versions([(each.event_id, each.version) for each in page.entries])
        changes = [
            KnownChange(versions[each.event_id, each.version], each.place) for each in page.entries
        ]
        return ChangePage(changes, page.total, page.place)

    @property
    def is_recorded(self) -> bool:
        """Whether the feed has the publication that was served first; at 1 M events it takes
        seconds."""
        return self._recorded.is_set()

    def follow(self) -> PublishedViews | None:
        """Record the changes of a new publication, and return its views if it can be served.

        For a thread, since it reads the file. A problem is noted in `trouble`; a file that can't be
        served leaves the one before it in service.
        """
        views, trouble = None, None
        try:
            signature = file_signature(self._path)
            if signature == self._refused:
                trouble = self.trouble
            elif signature != self._served.catalog.signature:
                self._refused = signature
                views = self._open()
                self._check_origin(views.catalog)
            if views is not None or signature == self._served.catalog.signature:
                self._refused = None
        except WarehouseError as error:
            views, trouble = None, f"the new publication is not served, and the old one is: {error}"
        if views is not None or self._is_behind:
            with self._clocking:
                self._recording = True
            failure = self._record((views or self._served).catalog, is_served=views is None)
            trouble = trouble or failure
            if views is None:
                self._resume_clock()
        if trouble is not None and trouble != self.trouble:
            log.error("%s", trouble)
        self.trouble = trouble
        return views

    def fail(self, error: Exception) -> bool:
        """Note that following failed unexpectedly, and return whether that is new.

        The served publication stays in service.
        """
        trouble = f"following the publications failed: {type(error).__name__}: {error}"
        is_new, self.trouble = trouble != self.trouble, trouble
        self._resume_clock()
        return is_new

    def serve(self, views: PublishedViews) -> None:
        """Serve other views from the next request on."""
        self._served, self._served_since = views, self._wall()
        self._resume_clock()

    def describe(self) -> dict[str, Any]:
        """Return the publication that is served, and why a newer one is not, for `/healthz`."""
        served = self._served
        trouble = self.trouble
        return {
            "publishedAt": served.catalog.published_at,
            "servedSince": self._served_since,
            "events": served.bounds.events,
            "firstPull": served.bounds.first,
            "lastPull": served.bounds.last,
            "changesRecorded": self.is_recorded,
            # Without the folders of this machine: the path needs no key.
            "trouble": None if trouble is None else trouble.replace(f"{self._path.parent}/", ""),
        }

    def _record(self, catalog: PublishedCatalog, *, is_served: bool) -> str | None:
        """Record the changes of a publication; return why that failed, None if it did not.

        Another one may have replaced it. It is recorded nevertheless if it is in service.
        """
        try:
            self._feed.follow(catalog, self._recording_time, even_if_replaced=is_served)
            self._recorded_at = self._feed.last_recorded_at()
            self._is_behind = not self._feed.is_at(catalog)
        except (WarehouseError, duckdb.Error) as error:
            self._is_behind = True
            return f"the changes of the publication are not recorded: {error}"
        if not self._is_behind:
            self._recorded.set()
        return None

    def _recording_time(self) -> datetime:
        """Return a time after all that was pushed, so that no change is passed over."""
        return max(self._pushed_until + timedelta(microseconds=1), self._wall())

    def _resume_clock(self) -> None:
        with self._clocking:
            self._pushed_until = max(self._pushed_until, self._recorded_at)
            self._recording = False

    def _open(self) -> PublishedViews:
        return PublishedViews(self._path, events_in_memory=self._events_in_memory)

    def _check_origin(self, catalog: PublishedCatalog) -> None:
        """Raise WarehouseError if a file has none of the batches of the served one."""
        if self._served.catalog.shares_batches(catalog):
            return
        catalog.close()
        raise WarehouseError(
            f"{self._path} was replaced by the warehouse of another home: it has none of the "
            "batches that the served one has. Restore it (`almanac replay`), or restart the mirror "
            "with another --dir."
        )


class PublishedMemoryView(MemoryView):
    """The view in memory of a published file at a time; only cancellations are found otherwise."""

    def __init__(self, catalog: PublishedCatalog, ts: datetime) -> None:
        cancelled = catalog.cancelled(ts)
        super().__init__(
            EventIndex.of(catalog.events(ts)),
            coins=catalog.coins(ts),
            categories=catalog.categories(ts),
            cancelled={entry.id: entry.cancelled_at for entry, _ in cancelled},
        )
        self._known_cancellations = CancellationBook(cancelled)

    def cancellations(
        self, *, since: datetime, after: CancellationKey | None, limit: int
    ) -> CancellationSlice:
        return self._known_cancellations.page(since=since, after=after, limit=limit)


class PushClock:
    """The time of the webhooks of a mirror."""

    def __init__(self, store: MirrorStore) -> None:
        self._store = store

    def now(self) -> datetime:
        return self._store.pushed_until()


class ServedClock:
    """The wall clock, but never before the last pull: the service's clock may be ahead."""

    def __init__(self, store: MirrorStore, wall: Callable[[], datetime]) -> None:
        self._store = store
        self._wall = wall

    def now(self) -> datetime:
        last = self._store.bounds.last
        now = self._wall()
        return now if last is None else max(now, last)
