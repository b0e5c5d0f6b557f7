"""The version feed: a lasting order of all versions, so that a cursor never skips or repeats one.

Versions are recorded in the order in which publications showed them to this machine, and within one
publication in order of knowledge. A version is recognised by its event, its `known_from` and its
content. A version that a late delivery or a refold adds to the past is recorded when it appears. A
version that a refold only numbers anew is not recorded again. A version that one publication lacks
and a later one shows again is recorded again: a reader may have passed its place in between.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from almanac.errors import WarehouseError
from pipeline.mirror.published_catalog import PublishedCatalog, PublishedVersion
from warehouse.sql import Statements

FILE_NAME: Final = "changes.sqlite"
_SQL: Final = Statements(__package__)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1) // _MICROSECOND
_BUSY_S: Final = 30.0
_LATEST: Final = 2**62
_MADE: Final = (
    *("make_recorded", "index_recorded", "index_gone", "make_publications"),
    *("make_days", "make_position"),
)


class FeedUnusable(WarehouseError):
    """The file of a feed can't be read or written; the feed is as after the last publication."""


class ForeignPlace(Exception):
    """A place is not one of this feed, for example because its file was deleted or restored."""


class FeedPlace(NamedTuple):
    """How far a client has read. Times are in microseconds, `mark` and `since` are -1 if absent.

    `seq` is the last place, and `mark` the time at which it was recorded. Until `head`, versions
    that became known up to `since` are left out; a `head` of -1 is the end of the feed.
    """

    seq: int = 0
    mark: int = -1
    since: int = -1
    head: int = 0


class FeedEntry(NamedTuple):
    """A version, and the place from which a client that has read it continues."""

    event_id: str
    version: int
    place: FeedPlace


class FeedPage(NamedTuple):
    """Entries after a place, the number of all that follow, and the place after the page."""

    entries: list[FeedEntry]
    total: int
    place: FeedPlace


def start_place(since: datetime | None) -> FeedPlace:
    """Return the place of a new client: what became known after a time, and all that follows."""
    return FeedPlace() if since is None else FeedPlace(since=max(-1, to_micros(since)), head=-1)


class VersionFeed:
    """One file of a feed, made if it is absent. Safe to call from several threads and processes.

    A reader does not wait while a publication is compared.

    Raises (all methods):
        FeedUnusable: the file is damaged or not a feed, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = Lock()
        self._reading = Lock()
        self._writer = self._connect()
        self._reader = self._writer
        try:
            with self._as_unusable():
                self._writer.execute("PRAGMA journal_mode = WAL")
                with self._transaction():
                    for name in _MADE:
                        self._writer.execute(_statement(name))
                self._reader = self._connect()
        except FeedUnusable:
            self.close()
            raise

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def is_at(self, catalog: PublishedCatalog) -> bool:
        """Whether the feed has the changes of a publication, and of no later one."""
        with self._reading, self._as_unusable():
            return self._read("get_position") == [(catalog.published_at,)]

    def follow(
        self,
        catalog: PublishedCatalog,
        wall: Callable[[], datetime],
        *,
        even_if_replaced: bool = False,
    ) -> int:
        """Record the versions that a publication added; return their number.

        A file that was replaced since adds none, unless asked: another process may have recorded a
        later one. A kill leaves the feed as before, or complete.
        """
        with self._writing, self._as_unusable():
            if self._is_at(catalog):
                return 0
            with self._transaction():
                # Another process may have recorded it since.
                if self._is_at(catalog) or not (even_if_replaced or catalog.is_current):
                    return 0
                first = self._last() + 1
                self._compare(catalog)
                last = self._last()
                self._write("set_position", published_at=catalog.published_at)
                # A reader waits until the end of the transaction, so that no version is recorded
                # at a time before one at which a reader found nothing.
                self._reading.acquire()
                try:
                    if last >= first:
                        now = to_micros(wall())
                        self._write("add_publication", first_seq=first, last_seq=last, now=now)
                    self._writer.execute("COMMIT")
                finally:
                    self._reading.release()
            return last - first + 1

    def page(
        self, place: FeedPlace, *, until: datetime | None, limit: int, published_at: str
    ) -> FeedPage:
        """Return at most `limit` entries after a place.

        `until` leaves out what became known later. If the feed is not at the publication of
        `published_at`, the page is empty and ends at `place`.

        Raises:
            ForeignPlace: the place is not one of this feed.
        """
        with self._reading, self._as_unusable(), self._snapshot():
            self._check(place)
            ((last,),) = self._read("get_last")
            at = self._read("get_position")
            head = last if place.head < 0 else place.head
            bounds = {
                "seq": place.seq,
                "head": head,
                "since": place.since,
                "until": _LATEST if until is None else to_micros(until),
            }
            total, bounds["seq"] = self._count(bounds, last, is_bounded=until is not None)
            if at != [(published_at,)]:
                return FeedPage([], total, place)
            rows = self._read("list_after", **bounds, limit=limit)
            entries = [
                FeedEntry(event_id, version, FeedPlace(seq, mark, place.since, head))
                for seq, event_id, version, mark in rows
            ]
            if len(rows) == limit and entries:
                end = entries[-1].place
            else:
                found = self._read("get_mark", seq=last)
                mark = found[0][0] if found else -1
                end = FeedPlace(last, mark, place.since, head)
        return FeedPage(entries, total, end)

    def recorded_between(self, after: datetime, until: datetime) -> list[tuple[str, int, datetime]]:
        """Return event, version and time of what was recorded in a time, by the machine's clock.

        The first versions of a new feed are not news, and are left out.
        """
        bounds = {"after": to_micros(after), "until": to_micros(until)}
        with self._reading, self._as_unusable():
            rows = self._read("list_recorded_between", **bounds)
        return [(row[1], row[2], _EPOCH + row[3] * _MICROSECOND) for row in rows]

    def removed_versions(self) -> dict[str, list[datetime]]:
        """Return the times of the versions that refolds removed, by event."""
        with self._reading, self._as_unusable():
            rows = self._read("list_gone")
        found: dict[str, list[datetime]] = {}
        for event_id, micros in rows:
            found.setdefault(event_id, []).append(_EPOCH + micros * _MICROSECOND)
        return found

    def last_recorded_at(self) -> datetime:
        """Return the time of the last publication that added versions; 1970 in a new feed."""
        with self._reading, self._as_unusable():
            ((micros,),) = self._read("find_last_recorded_at")
        return _EPOCH + timedelta(microseconds=micros)

    def _compare(self, catalog: PublishedCatalog) -> None:
        """Record new versions, and correct those that a refold numbered anew or removed."""
        days = catalog.days()
        known = {date.fromisoformat(day): content for day, content in self._write("list_days")}
        changed = sorted(
            day for day in known.keys() | days.keys() if known.get(day) != days.get(day)
        )
        published = _count_equal(catalog.versions_of(changed))
        if not known and not self._last():
            self._writer.executemany(_statement("record"), published)
        else:
            self._write("drop_published")
            self._write("make_published")
            self._writer.executemany(_statement("add_published"), published)
            for day in changed:
                first = to_micros(datetime(day.year, day.month, day.day, tzinfo=UTC))
                self._write("update_recorded", first=first, end=first + _DAY)
                self._write("drop_recorded", first=first, end=first + _DAY)
            self._write("record_published")
            self._write("drop_published")
        for day in changed:
            if day in days:
                self._write("set_day", day=day.isoformat(), content=days[day])
            else:
                self._write("drop_day", day=day.isoformat())

    def _is_at(self, catalog: PublishedCatalog) -> bool:
        return self._write("get_position") == [(catalog.published_at,)]

    def _last(self) -> int:
        ((last,),) = self._write("get_last")
        return int(last)

    def _check(self, place: FeedPlace) -> None:
        if place.seq and self._read("get_mark", seq=place.seq) != [(place.mark,)]:
            raise ForeignPlace(f"{place.seq} is not a place of {self._path}")

    def _count(self, bounds: dict[str, int], last: int, *, is_bounded: bool) -> tuple[int, int]:
        """Return how many versions follow a place, and the place before the first of them.

        Both are exact, and come from the indexes where that is possible.
        """
        seq, early = bounds["seq"], 0
        if bounds["since"] >= 0 and seq < bounds["head"]:
            ((early, first),) = self._read("count_since", **bounds)
            seq = bounds["head"]
        if is_bounded:
            rest = {**bounds, "seq": seq, "since": -_LATEST, "head": _LATEST}
            ((late, _),) = self._read("count_since", **rest)
        else:
            ((gone,),) = self._read("count_gone", seq=seq)
            late = last - seq - gone
        return early + late, first - 1 if early else seq

    def _connect(self) -> sqlite3.Connection:
        with self._as_unusable():
            return sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )

    def _write(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._writer.execute(_statement(statement), values).fetchall()

    def _read(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._reader.execute(_statement(statement), values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a transaction of the writer; the body may end it."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._writer.in_transaction:
                self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Let the reader see one state of the feed."""
        self._reader.execute("BEGIN")
        try:
            yield
        finally:
            self._reader.execute("COMMIT")

    @contextmanager
    def _as_unusable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FeedUnusable(
                f"the change feed {self._path} can't be used: {error}. The recorded changes are "
                "kept. Check the free space of the disk; if the file is damaged or not a change "
                "feed, move it away: a new feed records all versions again, and its clients begin "
                "with `since`."
            ) from error


def _count_equal(
    versions: Iterable[PublishedVersion],
) -> Iterator[tuple[int, str, bytes, int, int]]:
    """Yield a row for each version, with its number among equal ones. They are in their order."""
    group, seen = (0, ""), list[bytes]()
    for known_from, event_id, version, content in versions:
        if (known_from, event_id) != group:
            group, seen = (known_from, event_id), []
        yield known_from, event_id, content, seen.count(content), version
        seen.append(content)


@cache
def _statement(name: str) -> str:
    return _SQL[name]


def to_micros(instant: datetime) -> int:
    """Return the microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND
