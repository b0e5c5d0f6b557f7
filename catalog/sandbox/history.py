"""The history of a synthetic world in the tables of a published warehouse, in memory.

A month is written when it is requested, after the months before it: versions are in the order in
which they became known, which is the order of the feed. A later version of an event is written with
the month in which it becomes known. Ranks are written for the days that a request can show.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from threading import Lock
from typing import Any, Final

import duckdb
import pyarrow as pa

from catalog.sandbox.world.announcements import Content
from catalog.sandbox.world.dates import DAY_S, find_month, to_seconds
from catalog.sandbox.world.lifecycle import CANCELLED, Life, generate_lives, pause_garbage_collector
from catalog.sandbox.world.roster import Roster
from catalog.sandbox.world.truth import CATEGORIES
from catalog.server.sql_store import SqlStore, read_statements

_SQL: Final = read_statements("catalog.sandbox", "history.sql")
_TIME: Final = pa.timestamp("s", tz="UTC")
_TEXTS: Final = pa.list_(pa.string())
_CONTENT: Final = {
    **dict.fromkeys(("slug", "title", "description", "displayed_date"), pa.string()),
    **dict.fromkeys(("date", "date_end"), _TIME),
    "date_type": pa.string(),
    "is_estimated": pa.bool_(),
    **dict.fromkeys(("categories", "coins"), _TEXTS),
    "impact": pa.float64(),
    **dict.fromkeys(("impact_summary", "source_url", "snapshot_url"), pa.string()),
    **dict.fromkeys(("last_verified_at", "created_at", "updated_at"), _TIME),
}
VERSION: Final = {
    "published_seq": pa.int64(),
    "event_id": pa.string(),
    "version": pa.int32(),
    **dict.fromkeys(("known_from", "known_to"), _TIME),
    "status": pa.string(),
    "cancelled_at": _TIME,
    **dict.fromkeys(("change_kinds", "changed_fields"), _TEXTS),
    **_CONTENT,
}
_RANKS: Final = {"coin": pa.string(), "rank": pa.int32(), "tracked": pa.bool_()}
_COLUMNS: Final = {
    "insert_versions": VERSION,
    "insert_coins": dict.fromkeys(("slug", "symbol", "name", "icon_url"), pa.string()),
    "insert_categories": dict.fromkeys(("id", "name"), pa.string()),
    "insert_ranks": _RANKS,
    "insert_absences": _RANKS,
}
"""The columns of `rows` in each statement."""
_MAKE: Final = (
    *("attach", "make_event_versions", "make_index", "make_coins", "make_coin_snapshots"),
    *("make_internal", "make_coin_absences", "make_event_coins", "make_categories"),
    *("make_cancellations", "make_batches"),
)
_NAMES: Final = {category.id: category.name for category in CATEGORIES}
_content_of: Final = itemgetter(*_CONTENT)
_in_order: Final = itemgetter(2, 0, 1)
_MONTHS_AT_ONCE: Final = 12
"""Bounds the memory that a span of months needs."""
Row = Sequence[Any]


def open_tables() -> duckdb.DuckDBPyConnection:
    # A query of a page takes milliseconds, and many run at a time.
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for name in _MAKE:
        connection.execute(_SQL[name])
    return connection


def insert(
    connection: duckdb.DuckDBPyConnection, statement: str, rows: Sequence[Row], **values: Any
) -> None:
    form = _COLUMNS[statement]
    columns = zip(*rows, strict=True) if rows else [()] * len(form)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, form.values(), strict=True)]
    connection.register("rows", pa.Table.from_arrays(arrays, names=list(form)))
    connection.execute(_SQL[statement], values)
    connection.unregister("rows")


class SandboxHistory:
    """The world of a seed and pace, written until the months that were requested."""

    def __init__(self, seed: int, pace: float) -> None:
        self._roster = Roster(seed)
        self._pace = pace
        self._waiting: defaultdict[int, list[Row]] = defaultdict(list)
        self._next_month = 0
        self._versions = 0
        self._days: set[int] = set()
        self._lock = Lock()
        self._connection = open_tables()
        coins = [(c.slug, c.symbol, c.name, c.icon_url) for c in self._roster.coins]
        insert(self._connection, "insert_coins", coins)
        insert(self._connection, "insert_categories", list(_NAMES.items()))
        identity = f"sandbox seed={seed} pace={pace:g}"
        self._store = SqlStore(self._connection, identity=identity, feed_id=identity)

    def at(self, now: datetime) -> SqlStore:
        """Return the store, which knows all until a time and a day before it."""
        seconds = to_seconds(now)
        month, day = find_month(seconds), seconds // DAY_S
        with self._lock:
            while self._next_month <= month:
                self._write_months(min(self._next_month + _MONTHS_AT_ONCE, month + 1))
            for each in {day - 1, day} - self._days:
                ranking = self._roster.ranking(each)
                ranks = [(coin.slug, rank, coin.tracked_on(each)) for coin, rank in ranking]
                for statement in ("insert_ranks", "insert_absences"):
                    insert(self._connection, statement, ranks, day=each)
                self._days.add(each)
        return self._store

    @pause_garbage_collector()
    def _write_months(self, end: int) -> None:
        rows: list[Row] = []
        for month in range(self._next_month, end):
            for life in generate_lives(month, self._roster, self._pace):
                for row in list_life_versions(life):
                    self._waiting[find_month(row[2])].append(row)
            rows += sorted(self._waiting.pop(month, ()), key=_in_order)
        numbered = [(self._versions + place, *row) for place, row in enumerate(rows, start=1)]
        insert(self._connection, "insert_versions", numbered)
        self._versions += len(rows)
        self._next_month = end
        pa.default_memory_pool().release_unused()


def list_life_versions(life: Life) -> Iterator[Row]:
    """Yield the versions of a life, with the columns of VERSION but the first."""
    content: Content = life[0].delta.copy()
    ends = [*(moment.at for moment in life[1:]), None]
    before = life[0].status
    for place, (at, kinds, status, delta) in enumerate(life):
        changed: list[str] = []
        if place:
            changed = [*delta, "status"] if status != before else [*delta]
            content.update(delta)
        cancelled_at = at if status == CANCELLED else None
        if cancelled_at is not None:
            changed.append("cancelled_at")
        before = status
        shown = content | {"categories": [_NAMES[id_] for id_ in content["categories"]]}
        known = (content["id"], place + 1, at, ends[place], status, cancelled_at, kinds, changed)
        yield *known, *_content_of(shown)
