"""The version feed: a lasting order of all versions, so that a cursor never skips or repeats one.

Versions are recorded in the order in which publications showed them to this machine, and within one
publication in order of knowledge. A version is recognised by its event, its `known_from` and its
content. So a version that a late delivery or a refold adds to the past is recorded when it appears,
and a version that a refold only numbers anew is not recorded again.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from pipeline.mirror.published_catalog import PublishedCatalog, PublishedVersion
from warehouse.sql import Statements

FILE_NAME: Final = "changes.sqlite"
_SQL: Final = Statements(__package__)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_BUSY_S: Final = 30.0
_LATEST: Final = 2**62
_MADE: Final = (
    *("make_recorded", "index_recorded", "index_recorded_at"),
    *("make_days", "make_position"),
)


class FeedUnreadable(Exception):
    """The file of the feed can't be used; nothing in it was changed."""


class Place(NamedTuple):
    """A version and its place in the feed."""

    seq: int
    event_id: str
    version: int


class VersionFeed:
    """One file of a feed, made if it is absent. Safe to call from several threads and processes.

    Raises:
        FeedUnreadable: the file is not a feed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            with self._transaction():
                for name in _MADE:
                    self._run(name)
        except sqlite3.Error as error:
            self._connection.close()
            raise FeedUnreadable(
                f"{path} is not a change feed: {error}. Move it away; a new feed records every "
                "version again, so its clients begin with `since`."
            ) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def follow(self, catalog: PublishedCatalog, now: datetime) -> int:
        """Record what a publication added; return the number of versions.

        A file that was replaced since adds none. A kill leaves the feed as before, or complete.
        """
        days = catalog.days()
        with self._lock, self._transaction():
            ((recorded_until,),) = self._run("get_position") or [("",)]
            if catalog.published_at == recorded_until or not catalog.is_current:
                return 0
            known = {date.fromisoformat(day): sha256 for day, sha256 in self._run("list_days")}
            changed = sorted(
                day for day in known.keys() | days.keys() if known.get(day) != days.get(day)
            )
            fresh = self._compare(changed, catalog.versions_of(changed))
            for version in sorted(fresh, key=lambda each: each[:3]):
                self._record(version, now)
            for day in changed:
                if day in days:
                    self._run("set_day", day=day.isoformat(), sha256=days[day])
                else:
                    self._run("drop_day", day=day.isoformat())
            self._run("set_position", published_at=catalog.published_at)
            return len(fresh)

    def _compare(
        self, days: Sequence[date], published: Sequence[PublishedVersion]
    ) -> list[PublishedVersion]:
        """Return the versions that were never recorded, and correct those that were."""
        here = {(each.event_id, each.known_from, each.content): each for each in published}
        for day in days:
            first = _micros(datetime(day.year, day.month, day.day, tzinfo=UTC))
            end = first + timedelta(days=1) // _MICROSECOND
            for row in self._run("list_recorded", first=first, end=end):
                seq, event_id, version, known_from, content, gone = row
                found = here.pop((event_id, known_from, content.hex()), None)
                now_at = version if found is None else found.version
                if (now_at, int(found is None)) != (version, gone):
                    self._run("update_recorded", seq=seq, version=now_at, gone=int(found is None))
        return list(here.values())

    def _record(self, version: PublishedVersion, now: datetime) -> None:
        self._run(
            "record",
            event_id=version.event_id,
            version=version.version,
            known_from=version.known_from,
            content=bytes.fromhex(version.content),
            recorded_at=_micros(now),
        )

    def page(
        self, after: int, *, since: datetime | None, until: datetime | None, limit: int
    ) -> tuple[list[Place], int]:
        """Return at most `limit` places after one, and the number of all that follow.

        `since` and `until` bound when the versions became known: after the first, up to the second.
        """
        bounds = {
            "seq": after,
            "since": -_LATEST if since is None else _micros(since),
            "until": _LATEST if until is None else _micros(until),
        }
        with self._lock:
            rows = self._run("list_after", **bounds, limit=limit)
            ((total,),) = self._run("count_after", **bounds)
        return [Place(*row) for row in rows], total

    def recorded_between(self, after: datetime, until: datetime) -> list[tuple[Place, datetime]]:
        """Return what was recorded in a time, by the machine's clock, with the time of each."""
        with self._lock:
            rows = self._run("list_recorded_between", after=_micros(after), until=_micros(until))
        return [(Place(*row[:3]), _EPOCH + row[3] * _MICROSECOND) for row in rows]

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(_statement(statement), values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


@cache
def _statement(name: str) -> str:
    return _SQL[name]


def _micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND
