"""The store over the tables of a published warehouse, in DuckDB.

Every method asks the tables as of its time. Only data that never changes is cached: the names of
coins and of categories. Each call uses its own database cursor, so any thread may call.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

import duckdb
from msgspec import structs

from almanac.core.statements import Statements
from almanac.core.timestamps import ORIGIN, US
from catalog.contract.constants import IMPACT_BANDS, IMPACT_MAJOR
from catalog.contract.plans import Plan, Window
from catalog.contract.records import (
    LIST_SEPARATOR,
    Cancellation,
    Category,
    Coin,
    Event,
    EventCoin,
)
from catalog.server.catalog_store import (
    UNRANKED,
    CancellationKey,
    ChangeQuery,
    CoinKey,
    CoinQuery,
    DateKey,
    EventQuery,
    ImpactKey,
    KnownSpan,
    StoredEvent,
    StoredVersion,
    StorePage,
)

_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_SEQ_MAX: Final = 2**63 - 1
_FETCHED: Final = 250
_FETCHED_RECORDS: Final = 2_048
_VERSION_COLUMNS: Final = 9
_PLACES: Final = {name: place for place, name in enumerate(StoredEvent.__struct_fields__)}
_DATE: Final = _PLACES["date"]
_IS_ESTIMATED: Final = _PLACES["is_estimated"]
_CATEGORIES: Final = _PLACES["categories"]
_COINS: Final = _PLACES["coins"]
_TEXTS: Final = [_PLACES[name] for name in ("title", "displayed_date", "date_type")]
_TIMES: Final = [
    _PLACES[name] for name in ("date", "date_end", "last_verified_at", "created_at", "updated_at")
]
_MAJOR: Final = {"major": IMPACT_MAJOR, "major_band": IMPACT_BANDS[-1][1]}
_ORDERS: Final = {"date_asc": "date", "impact_desc": "impact"}
_COLUMNS: Final = {field.encode_name: field.name for field in structs.fields(Event)}
_TIME_FIELDS: Final = ("date", "dateEnd", "lastVerifiedAt", "createdAt", "updatedAt")
_CELLS: Final = {
    **{name: f"csv_text({column})" for name, column in _COLUMNS.items()},
    **{name: f"csv_time({_COLUMNS[name]})" for name in _TIME_FIELDS},
    "id": "csv_text(event_id)",
    "isEstimated": "coalesce(is_estimated, false)",
    "categories": f"csv_text(array_to_string(categories, '{LIST_SEPARATOR}'))",
    "coins": f"csv_text(array_to_string(coins, '{LIST_SEPARATOR}'))",
    "impact": "coalesce(impact::VARCHAR, impact_band, '')",
}
"""The SQL of each field of the export on a plan with precise scores."""
Row = Sequence[Any]
Values = dict[str, Any]


class CoinNames(NamedTuple):
    """The names and icon of a coin, and when an event first named it."""

    coin: EventCoin
    icon_url: str
    named_at: float | None

    @property
    def folded(self) -> tuple[str, str]:
        return self.coin.name.casefold(), self.coin.symbol.casefold()


class SqlStore:
    """A catalog's history in an attached database `schema`; the connection is of this store alone.

    Keys are exclusive: rows strictly after them. `identity` differs between catalogs and between
    states of a catalog. A position in one feed is meaningless in a feed with another `feed_id`.
    `order` is a table with `seq`, `event_id` and `version` that gives the feed another order than
    that of publication.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: str = "published",
        *,
        identity: str,
        feed_id: str,
        order: str | None = None,
    ) -> None:
        self.identity = identity
        self.feed_id = feed_id
        self._connection = connection
        feeds = Statements("catalog.server", schema=schema, other_order=order or "")
        feed = feeds["published_feed" if order is None else "other_feed"]
        self._sql = Statements("catalog.server", schema=schema, feed=feed)
        connection.create_function("casefold", str.casefold, ["VARCHAR"], "VARCHAR")
        for name in ("make_has_text", "make_has_any", "make_csv_text", "make_csv_time"):
            connection.execute(self._sql[name])

    @property
    def span(self) -> KnownSpan:
        ((first, last, changed, events),) = self._rows("find_span")
        known = [micros for micros in (last, changed) if micros is not None]
        return KnownSpan(_of_micros(first), _of_micros(max(known, default=None)), events)

    def events(
        self, query: EventQuery, *, after: DateKey | ImpactKey | None, limit: int
    ) -> StorePage[StoredEvent]:
        if query.window.empty:
            return StorePage((), more=False, total=0)
        values, parts = self._filters(query)
        if after is not None:
            *score, values["date"], values["event_id"] = after
            if score:
                values["score"] = score[0]
        after_part = "" if after is None else self._sql[f"after_{_ORDERS[query.order]}"]
        values["limit"] = limit + 1
        ((total, places),) = self._rows("list_places", values, after=after_part, **parts)
        if not places:
            return StorePage((), more=False, total=total)
        rows = self._rows("list_rows", {"places": places[:limit]})
        events = {place: self._event(row) for place, *row in rows}
        page = [events[place] for place in places[:limit]]
        return StorePage(page, more=len(places) > limit, total=total)

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        """Yield every event of the query in order, a few hundred at a time."""
        if query.window.empty:
            return
        values, parts = self._filters(query)
        with closing(self._connection.cursor()) as running:
            parts["columns"] = "*"
            running.execute(self._sql.fill("list_events", **parts), values)
            while rows := running.fetchmany(_FETCHED):
                yield from map(self._event, rows)

    def iter_csv(self, query: EventQuery, plan: Plan) -> Iterator[bytes]:
        """Yield the records of the events of the query, as a plan shows them, many at a time."""
        if query.window.empty:
            return
        values, parts = self._filters(query)
        cells = [_CELLS[name] if plan.shows(name) else "''" for name in _COLUMNS]
        parts |= {"columns": "*", "cells": ", ".join(cells)}
        with closing(self._connection.cursor()) as running:
            running.execute(self._sql.fill("list_csv", **parts), values)
            while rows := running.fetchmany(_FETCHED_RECORDS):
                yield "".join([record for (record,) in rows]).encode()

    def event(self, event_id: str, ts: datetime) -> StoredVersion | None:
        """Return the version of an event at a time, whatever its status; None if unknown.

        A cancelled event of which only the cancellation is known has no `event`.
        """
        known = self.history(event_id, ts)
        if known:
            return known[-1]
        rows = self._rows("find_cancellation", {"event_id": event_id, "ts": ts})
        return self._version(rows[0], ts) if rows else None

    def coins(self, query: CoinQuery, *, after: CoinKey | None, limit: int) -> StorePage[Coin]:
        ranks = self._ranks(query.ts)
        found = sorted(
            (UNRANKED if rank is None else rank, slug)
            for slug, (rank, tracked) in ranks.items()
            if (query.tracked is None or tracked is query.tracked)
            and (query.coverage_top is None or (rank is not None and rank <= query.coverage_top))
            and (query.q is None or any(query.q in name for name in self._names[slug].folded))
        )
        first = 0 if after is None else bisect_right(found, after)
        slugs = [slug for _, slug in found[first : first + limit]]
        page = self._counted(slugs, ranks, query.ts, query.upcoming)
        return StorePage(page, more=len(found) > first + limit, total=len(found))

    def coin(self, slug: str, ts: datetime, upcoming: Window) -> Coin | None:
        ranks = self._ranks(ts, [slug])
        return next(iter(self._counted([*ranks], ranks, ts, upcoming)), None)

    def ranks(self, slugs: Sequence[str], ts: datetime) -> dict[str, int | None]:
        return {slug: rank for slug, (rank, _) in self._ranks(ts, slugs).items()}

    def categories(self, ts: datetime) -> Sequence[Category]:
        at = ts.timestamp()
        return [category for category, known_from in self._categories if known_from <= at]

    def cancellations(
        self, ts: datetime, since: datetime, *, after: CancellationKey | None, limit: int
    ) -> StorePage[Cancellation]:
        """Return the cancellations that happened or became known since a time."""
        at, event_id = (None, None) if after is None else after
        values = {"ts": ts, "since": since, "since_s": since.timestamp(), "limit": limit + 1}
        keys = {"after_at": at, "after_id": event_id}
        ((total, found),) = self._rows("list_cancelled", values | keys)
        rows = [
            Cancellation(id=id_, cancelled_at=_of_micros(at * 10**6)) for at, id_ in found or ()
        ]
        return StorePage(rows[:limit], more=len(rows) > limit, total=total)

    def history(self, event_id: str, ts: datetime) -> Sequence[StoredVersion]:
        """Return the versions of an event that were known at a time, oldest first."""
        rows = self._rows("list_history", {"event_id": event_id})
        every = [self._version(row, ts) for row in rows]
        versions = [version for version in every if version.known_from <= ts]
        major = next((v.version for v in versions if v.event and v.event.is_major), None)
        return [_marked(version, major) for version in versions]

    def changes(self, query: ChangeQuery, *, limit: int) -> StorePage[StoredVersion]:
        values = {
            "after": min(max(query.after, 0), _SEQ_MAX),
            "head": min(max(query.head, 0), _SEQ_MAX),
            "until": query.until,
            "since": query.since,
            "limit": limit + 1,
        }
        found = self._rows("list_changes", values)
        if not found:
            return StorePage((), more=False, total=0)
        seqs = {"seqs": [seq for seq, _ in found[:limit]]}
        versions = [self._version(row, query.until) for row in self._rows("list_versions", seqs)]
        before = [self._version(row, query.until) for row in self._rows("list_previous", seqs)]
        previous = {(version.event_id, version.version + 1): version for version in before}
        event_ids = list({version.event_id for version in versions})
        rows = self._rows("list_first_major", {"event_ids": event_ids, **_MAJOR})
        major: dict[str, int] = {event_id: first for event_id, first in rows}
        page = [
            structs.replace(
                _marked(version, major.get(version.event_id)),
                previous=previous.get((version.event_id, version.version)),
            )
            for version in versions
        ]
        return StorePage(page, more=len(found) > limit, total=found[0][1])

    def head(self, until: datetime) -> int:
        """Return the last place of the feed with a version known at a time; 0 if there is none."""
        ((seq,),) = self._rows("find_head", {"ts": until})
        return int(seq)

    def last_pull(self, ts: datetime) -> datetime | None:
        """Return the time of the last pull until a time, or of the last change if that is later."""
        rows = self._rows("find_last_pull", {"ts": ts})
        found: datetime | None = _of_micros(rows[0][0])
        return found

    @cached_property
    def _names(self) -> dict[str, CoinNames]:
        rows = self._rows("list_coin_names")
        return {
            slug: CoinNames(EventCoin(slug=slug, symbol=s, name=n), *o) for slug, s, n, *o in rows
        }

    @cached_property
    def _categories(self) -> list[tuple[Category, float]]:
        rows = self._rows("list_categories")
        return [(Category(id=id_, name=name), known_from) for id_, name, known_from in rows]

    def _ranks(
        self, ts: datetime, slugs: Sequence[str] | None = None
    ) -> dict[str, tuple[int | None, bool]]:
        """Return rank and whether it is tracked of each coin, or those of `slugs`, known then.

        A coin that only events named has no rank. A missing coin is not listed.
        """
        rows = self._rows("list_ranks", {"ts": ts, "coins": slugs})
        pulled = {row[0] for row in rows}
        ranks = {slug: (rank, bool(tracked)) for slug, rank, tracked, lacks in rows if not lacks}
        at = ts.timestamp()
        for slug in self._names.keys() if slugs is None else self._names.keys() & set(slugs):
            named_at = self._names[slug].named_at
            if slug not in pulled and named_at is not None and named_at <= at:
                ranks[slug] = (None, False)
        return ranks

    def _counted(
        self,
        slugs: Sequence[str],
        ranks: Mapping[str, tuple[int | None, bool]],
        ts: datetime,
        upcoming: Window,
    ) -> list[Coin]:
        counters: dict[str, Row] = {}
        if slugs and not upcoming.empty:
            values = {**_window_values(ts, upcoming), **_MAJOR, "coins": slugs}
            counters = {slug: row for slug, *row in self._rows("count_by_coin", values)}
        found: list[Coin] = []
        for slug in slugs:
            coin, icon_url, _ = self._names[slug]
            (rank, tracked), (upcoming, major, peak) = ranks[slug], counters.get(slug, (0, 0, None))
            counts = {"upcoming_count": upcoming, "major_count": major, "peak_impact": peak}
            known = {**structs.asdict(coin), **counts, "icon_url": icon_url}
            found.append(Coin(**known, rank=rank, tracked=tracked))
        return found

    def _filters(self, query: EventQuery) -> tuple[Values, dict[str, str]]:
        """Return the values of a query, and the parts of its statement."""
        wanted, top, covered = query.categories, query.coverage_top, None
        if top is not None:
            ranks = self._ranks(query.ts).items()
            covered = [slug for slug, (rank, _) in ranks if rank is not None and rank <= top]
        names = [c.name for c, _ in self._categories if wanted is not None and c.id in wanted]
        filters = {
            "coins": None if query.coins is None else sorted(query.coins),
            "categories": None if wanted is None else names,
            "impact": query.impact_min,
            "covered": covered,
            "keyword": query.keyword,
        }
        values = {name: value for name, value in filters.items() if value is not None}
        parts = " AND ".join(["true", *(self._sql[f"filter_{name}"] for name in values)])
        if query.keyword is not None:
            values["in_description"] = query.keyword_in_description
        order = self._sql[f"by_{_ORDERS[query.order]}"]
        return values | _window_values(query.ts, query.window), {"filters": parts, "order": order}

    def _event(self, row: Row) -> StoredEvent:
        """Return a row of `event_columns`, whose date Python can hold."""
        fields = [*row]
        for place in _TEXTS:
            fields[place] = row[place] or ""
        for place in _TIMES:
            fields[place] = _of_seconds(row[place])
        fields[_IS_ESTIMATED] = bool(row[_IS_ESTIMATED])
        if row[_CATEGORIES] is not None:
            fields[_CATEGORIES] = tuple(row[_CATEGORIES])
        fields[_COINS] = tuple([self._names[coin].coin for coin in row[_COINS] or ()])
        return StoredEvent(*fields)

    def _version(self, row: Row, ts: datetime) -> StoredVersion:
        """Return a row of `version_columns` and `event_columns`, as known at a time."""
        seq, event_id, version, known_from, known_to, status, cancelled_at, kinds, changed = row[
            :_VERSION_COLUMNS
        ]
        content, ends_at = row[_VERSION_COLUMNS:], _of_micros(known_to)
        return StoredVersion(
            seq,
            event_id,
            version,
            _of_micros(known_from),
            None if ends_at is None or ends_at > ts else ends_at,
            status,
            _of_seconds(cancelled_at),
            tuple(kinds or ()),
            tuple(changed or ()),
            False,
            None if _of_seconds(content[_DATE]) is None else self._event(content),
        )

    def _rows(self, name: str, values: Values | None = None, **parts: str) -> Sequence[Row]:
        with closing(self._connection.cursor()) as running:
            return running.execute(self._sql.fill(name, **parts), values or {}).fetchall()


def _window_values(ts: datetime, window: Window) -> Values:
    return {"ts": ts, "least": window.lower, "most": window.upper or _LATEST}


def _marked(version: StoredVersion, first_major: int | None) -> StoredVersion:
    """Return the version, marked if it is the first with a score of 7.5 or more."""
    if version.version != first_major:
        return version
    return structs.replace(version, is_first_major=True)


def _of_seconds(seconds: float | None) -> datetime | None:
    """Return a time of whole seconds; None if it is unknown or Python has no such time."""
    try:
        return None if seconds is None else ORIGIN + timedelta(seconds=seconds // 1)
    except OverflowError:
        return None


def _of_micros(micros: Any) -> Any:
    return None if micros is None else ORIGIN + micros * US
