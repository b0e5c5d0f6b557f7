"""One published file as a catalog: the events, coins, categories and cancellations known at a time.

The file stays open, so that a publication leaves it unchanged. All methods may be called from
several threads.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from almanac.errors import WarehouseError
from almanac.reading.attached_file import attach_published
from almanac.reading.connections import open_memory
from catalog.contract.constants import IMPACT_BANDS, IMPACT_MAJOR
from catalog.contract.plans import Window
from catalog.server.memory_view import CoinBook
from catalog.server.store import (
    CancelledEntry,
    Counters,
    StoredCategory,
    StoredCoin,
    StoredEvent,
)
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_SQL: Final = Statements(__package__, GROUPS)
_ALIAS: Final = "published"
_MEMORY: Final = "1GB"
_FETCHED: Final = 1_000
_NO_SLUG: Final = re.compile(r"[^a-z0-9]+")
_FIELDS: Final = len(fields(StoredEvent))
_MAJOR_BAND: Final = IMPACT_BANDS[-1][1]
_MACROS: Final = ("make_versions", "make_known_at", "make_has_text", "make_matching")
_EVENTS_KEPT: Final = 20_000
"""About 40 MB."""
_BOOKS_KEPT: Final = 4
Values = Mapping[str, Any]
FileSignature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class KnownSpan:
    """The times that a file can answer for, and its number of events.

    `first` is the first pull of events, None if there was none. `last` is the last pull of any
    feed, and never before the last change.
    """

    first: datetime | None
    last: datetime | None
    events: int


class PublishedVersion(NamedTuple):
    """A version, and a hash of its content; `known_from` is in microseconds."""

    known_from: int
    event_id: str
    version: int
    content: bytes


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """A version, with its event as the server stores it. The event is None if it has no date.

    `changed` are the fields that differ from the version before, by the names of StoredEvent.
    """

    event_id: str
    version: int
    known_from: datetime
    known_to: datetime | None
    status: str
    cancelled_at: datetime | None
    kinds: tuple[str, ...]
    changed: tuple[str, ...]
    event: StoredEvent | None


class KnownCancellation(NamedTuple):
    """A cancellation, and when it became known."""

    entry: CancelledEntry
    known_from: datetime


class PublishedCatalog:
    """A published file that is open for reading.

    Raises:
        WarehouseError: the file is missing or can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.signature = file_signature(path)
        self._events: dict[int, StoredEvent] = {}
        self._books: dict[datetime, CoinBook] = {}
        self._connection = open_memory()
        try:
            self._connection.execute(f"SET memory_limit = '{_MEMORY}'")
            attach_published(self._connection, path, _ALIAS)
            self._connection.create_function("casefold", str.casefold, ["VARCHAR"], "VARCHAR")
            for name in _MACROS:
                self._connection.execute(_SQL[name])
            first, last, changed, events = self._all("find_bounds")[0]
            self._ids = dict(self._all("list_category_ids"))
            ((self.published_at,),) = self._all("find_publication")
        except (duckdb.Error, ValueError) as error:
            self._connection.close()
            raise unservable(path, error) from error
        known = [instant for instant in (last, changed) if instant is not None]
        self.bounds = KnownSpan(_utc(first), _utc(max(known, default=None)), events)

    @property
    def is_current(self) -> bool:
        """Whether no other file was published since, and this one is still there."""
        try:
            return file_signature(self.path) == self.signature
        except WarehouseError:
            return False

    def close(self) -> None:
        self._connection.close()

    def shares_batches(self, other: "PublishedCatalog") -> bool:
        """Whether another file has one of the first batches of this one, or this one has none."""
        ours = [batch for (batch,) in self._all("list_first_batches")]
        if not ours:
            return True
        ((found,),) = other._all("count_batches", {"batches": ours})
        return bool(found)

    def events(self, ts: datetime) -> Iterator[StoredEvent]:
        """Yield the events that the list shows at a time."""
        return self._stored("list_all", {"ts": ts})

    def page(self, filters: Values, after: Values, limit: int) -> tuple[list[StoredEvent], int]:
        """Return at most `limit` events after a key, and the number of all that match.

        `filters` are those of `matching`, and `by_impact`; `after` is a key of `list_places`.
        """
        found = self._all("list_places", {**filters, **after, "limit": limit})
        total = found[0][1] if found else 0
        return self._events_at([place for place, _ in found]), total

    def iter_matching(self, filters: Values) -> Iterator[StoredEvent]:
        """Yield all events that match, in the order of the list."""
        return self._stored("list_matching", filters)

    def event(self, event_id: str, ts: datetime) -> StoredEvent | None:
        """Return an event that the list shows at a time."""
        found = self._all("find_place", {"event_id": event_id, "ts": ts})
        return self._events_at([found[0][0]])[0] if found else None

    def counters(
        self, ts: datetime, window: Window, top: Sequence[str] | None
    ) -> dict[str, Counters]:
        """Return the counters of every coin with events in the window."""
        values = {
            "ts": ts,
            "least": window.lower,
            "most": window.upper,
            "top": top,
            "major": IMPACT_MAJOR,
            "major_band": _MAJOR_BAND,
        }
        return {
            coin: Counters(upcoming, major, peak)
            for coin, upcoming, major, peak in self._all("count_by_coin", values)
        }

    def cancelled(self, ts: datetime) -> list[KnownCancellation]:
        """Return the cancellations in their order."""
        return [
            KnownCancellation(
                CancelledEntry(event_id, datetime.fromtimestamp(at, UTC)),
                known_from.astimezone(UTC),
            )
            for at, event_id, known_from in self._all("list_cancelled", {"ts": ts})
        ]

    def coins(self, ts: datetime) -> CoinBook:
        """Return the coins known at a time: the same book until the coins changed."""
        place = bisect_right(self._coin_times, ts)
        changed = self._coin_times[place - 1] if place else ts
        book = self._books.get(changed)
        if book is None:
            book = CoinBook(StoredCoin(*row) for row in self._all("list_coins", {"ts": changed}))
            if len(self._books) >= _BOOKS_KEPT:
                self._books.clear()
            self._books[changed] = book
        return book

    def categories(self, ts: datetime) -> tuple[StoredCategory, ...]:
        """Return the categories known at a time."""
        return tuple(category for category, known_from in self._categories if known_from <= ts)

    @cached_property
    def _coin_times(self) -> list[datetime]:
        return [at.astimezone(UTC) for (at,) in self._all("list_coin_times")]

    @cached_property
    def _categories(self) -> list[tuple[StoredCategory, datetime]]:
        return [
            (StoredCategory(self._category_id(name) if id_ is None else id_, name), known_from)
            for id_, name, known_from in self._all("list_categories")
        ]

    def last_pull(self, ts: datetime) -> datetime | None:
        """Return the time of the last pull until a time."""
        ((found,),) = self._all("find_last_pull", {"ts": ts})
        return _utc(found)

    @cached_property
    def never_known(self) -> frozenset[str]:
        """The columns whose value no version knows, because the plan never showed them."""
        return frozenset(name for (name,) in self._all("list_never_known"))

    def days(self) -> dict[date, str]:
        """Return the observed days, with the content of each, which differs if its versions do."""
        return dict(self._all("list_published_days"))

    def versions_of(self, days: Sequence[date]) -> Iterator[PublishedVersion]:
        """Yield the versions that became known on some days, in order of knowledge."""
        rows = self._rows("list_versions_of", {"days": list(days)})
        return (PublishedVersion(*row) for row in rows)

    def versions(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], CatalogVersion]:
        """Return versions by event and number; an unknown version is left out."""
        event_ids, numbers = zip(*wanted, strict=True) if wanted else ((), ())
        values = {"event_ids": list(event_ids), "numbers": list(numbers)}
        found = (self._version(row) for row in self._rows("find_versions", values))
        return {(version.event_id, version.version): version for version in found}

    def history(self, event_id: str, ts: datetime) -> list[CatalogVersion]:
        """Return the versions of an event that were known at a time, oldest first."""
        rows = self._rows("list_history", {"event_id": event_id, "ts": ts})
        return [self._version(row) for row in rows]

    def versions_between(self, after: datetime, until: datetime) -> Iterator[CatalogVersion]:
        """Yield the versions that became known after a time, until another, in that order."""
        values = {"after": after, "until": until}
        return (self._version(row) for row in self._rows("list_versions_between", values))

    def first_major_versions(self, event_ids: Iterable[str]) -> dict[str, int]:
        """Return the first version of each event in which its score is 7.5 or more."""
        values = {
            "event_ids": list(event_ids),
            "major": IMPACT_MAJOR,
            "major_band": _MAJOR_BAND,
        }
        return dict(self._all("list_first_major", values))

    def order_of_knowledge(
        self, after: datetime, until: datetime
    ) -> list[tuple[datetime, str, int]]:
        """Return `known_from`, event and number of the versions after a time, until another."""
        rows = self._all("list_order", {"after": after, "until": until})
        return [(known_from.astimezone(UTC), *others) for known_from, *others in rows]

    def times(self) -> list[datetime]:
        """Return all times at which something became known, in order."""
        return [at.astimezone(UTC) for (at,) in self._all("list_times")]

    def _stored(self, statement: str, values: Values) -> Iterator[StoredEvent]:
        return (self._event(row) for row in self._rows(statement, values))

    def _events_at(self, places: Sequence[int]) -> list[StoredEvent]:
        """Return the events of some rows, in their order; a row never changes, so it is kept."""
        kept = self._events
        missing = [place for place in places if place not in kept]
        if missing:
            if len(kept) + len(missing) > _EVENTS_KEPT:
                # A new one, since other threads may read the old one.
                kept = self._events = {}
                missing = list(places)
            rows = self._all("list_rows", {"places": missing})
            kept.update((row[-1], self._event(row)) for row in rows)
        return [kept[place] for place in places]

    def _event(self, row: tuple[Any, ...]) -> StoredEvent:
        """Return a row of `versions` as the server stores an event."""
        event_id, slug, title, description, displayed_date, date, date_end, date_type = row[:8]
        is_estimated, categories, coins, impact, summary, source_url, snapshot_url = row[8:15]
        verified_at, created_at, updated_at, impact_band = row[15:_FIELDS]
        if categories is not None:
            categories = tuple([self._category_id(name) for name in categories])
        return StoredEvent(
            event_id,
            slug,
            title,
            description,
            displayed_date,
            datetime.fromtimestamp(date, UTC),
            _instant(date_end),
            date_type,
            is_estimated,
            categories,
            tuple(coins or ()),
            impact,
            summary,
            source_url,
            snapshot_url,
            _instant(verified_at),
            _instant(created_at),
            _instant(updated_at),
            impact_band,
        )

    def _version(self, row: tuple[Any, ...]) -> CatalogVersion:
        date, _, status, cancelled_at, version, known_from, known_to, kinds, changed, _ = row[
            _FIELDS:
        ]
        return CatalogVersion(
            event_id=row[0],
            version=version,
            known_from=known_from.astimezone(UTC),
            known_to=_utc(known_to),
            status=status,
            cancelled_at=_instant(cancelled_at),
            kinds=tuple(kinds or ()),
            changed=tuple(changed or ()),
            event=None if date is None else self._event(row),
        )

    def _category_id(self, name: str) -> str:
        """Return the id of a category. If the list lacks it, the id is made from its name."""
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = _NO_SLUG.sub("-", name.lower()).strip("-") or name
        return found

    def _rows(self, statement: str, values: Values) -> Iterator[tuple[Any, ...]]:
        running = self._connection.cursor()
        running.execute(_SQL[statement], dict(values))
        while rows := running.fetchmany(_FETCHED):
            yield from rows

    def _all(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        return self._connection.cursor().execute(_SQL[statement], dict(values or {})).fetchall()


def file_signature(path: Path) -> FileSignature:
    """Return what differs after each publication.

    Raises:
        WarehouseError: there is no file.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise WarehouseError(
            f"there is no warehouse at {path}: {error.strerror}; `almanac run` or `almanac merge` "
            "makes it"
        ) from error
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def unservable(path: Path, error: Exception) -> WarehouseError:
    """Return the error for a file that can't be read as a published file."""
    return WarehouseError(
        f"{path} can't be served: {str(error).rstrip('!.')}. If it is damaged, or another version "
        "of Almanac made it, `almanac replay` rebuilds it."
    )


def utc_text(instant: datetime) -> str:
    """Return the time as the interface writes it, with its microseconds if it has any."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)


def _instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
