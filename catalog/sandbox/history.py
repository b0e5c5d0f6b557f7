"""The history of a synthetic world in the tables of a published warehouse, in memory.

A month is written when it is requested, after the months before it: versions are in the order in
which they became known, which is the order of the feed. A later version of an event is written with
the month in which it becomes known. Ranks are written for the days that a request can show.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from operator import itemgetter
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any, Final

import duckdb
import msgspec

from catalog.sandbox.world.dates import DAY_S, find_month, to_seconds
from catalog.sandbox.world.lifecycle import CANCELLED, Life, generate_lives, pause_garbage_collector
from catalog.sandbox.world.roster import Roster
from catalog.sandbox.world.truth import CATEGORIES
from catalog.server.sql_store import SqlStore, read_statements

_SQL: Final = read_statements("catalog.sandbox", "history.sql")
_MAKE: Final = (
    *("attach", "make_event_versions", "make_index", "make_coins", "make_coin_snapshots"),
    *("make_internal", "make_coin_absences", "make_event_coins", "make_categories"),
    *("make_cancellations", "make_batches"),
)
_NAMES: Final = {category.id: category.name for category in CATEGORIES}
_in_order: Final = itemgetter("known_from", "event_id", "version")
_MONTHS_AT_ONCE: Final = 12
"""Bounds the memory that a span of months needs."""
Row = dict[str, Any]


def open_tables() -> duckdb.DuckDBPyConnection:
    # A query of a page takes milliseconds, and many run at a time.
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for name in _MAKE:
        connection.execute(_SQL[name])
    return connection


def insert(
    connection: duckdb.DuckDBPyConnection, statement: str, rows: Iterable[Row], **values: Any
) -> None:
    """Insert rows, whose times are seconds. As JSON, since pyarrow imports pandas for each list."""
    with NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.Encoder().encode_lines(rows))
        file.flush()
        connection.execute(_SQL[statement], {"file": file.name, **values})


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
        coins = [
            {"slug": c.slug, "symbol": c.symbol, "name": c.name, "icon_url": c.icon_url}
            for c in self._roster.coins
        ]
        insert(self._connection, "insert_coins", coins)
        insert(self._connection, "insert_categories", map(msgspec.to_builtins, CATEGORIES))
        identity = f"sandbox seed={seed} pace={pace:g}"
        self._store = SqlStore(self._connection, identity=identity, feed_id=identity)

    def at(self, now: datetime) -> SqlStore:
        """Return the store, which knows all until a time and a day before it."""
        seconds = to_seconds(now)
        month, day = find_month(seconds), seconds // DAY_S
        with self._lock:
            with ThreadPoolExecutor(1) as pool:  # DuckDB inserts while the next rows are made.
                written = [
                    pool.submit(insert, self._connection, "insert_versions", rows)
                    for rows in self._list_versions(month + 1)
                ]
            for future in written:
                future.result()
            for each in {day - 1, day} - self._days:
                ranks = [
                    {"coin": coin.slug, "rank": rank, "tracked": coin.tracked_on(each)}
                    for coin, rank in self._roster.ranking(each)
                ]
                insert(self._connection, "insert_ranks", ranks, day=each)
                self._connection.execute(_SQL["insert_absences"], {"day": each})
                self._days.add(each)
        return self._store

    def _list_versions(self, end: int) -> Iterator[list[Row]]:
        """Yield the versions of the next months until one, of some months at a time."""
        while self._next_month < end:
            with pause_garbage_collector():
                rows: list[Row] = []
                for month in range(self._next_month, min(self._next_month + _MONTHS_AT_ONCE, end)):
                    for life in generate_lives(month, self._roster, self._pace):
                        for row in list_life_versions(life):
                            self._waiting[find_month(row["known_from"])].append(row)
                    rows += sorted(self._waiting.pop(month, ()), key=_in_order)
                    self._next_month = month + 1
                for row in rows:
                    self._versions += 1
                    row["published_seq"] = self._versions
            yield rows


def list_life_versions(life: Life) -> Iterator[Row]:
    """Yield the versions of a life as rows of `insert_versions` without `published_seq`."""
    content: Row = {**life[0].delta}
    ends = [*(moment.at for moment in life[1:]), None]
    before = life[0].status
    for place, (at, kinds, status, delta) in enumerate(life):
        changed: list[str] = []
        if place:
            changed = [*delta, "status"] if status != before else [*delta]
            content.update(delta)
        if status == CANCELLED:
            changed.append("cancelled_at")
        before = status
        yield {
            **content,
            "event_id": content["id"],
            "version": place + 1,
            "known_from": at,
            "known_to": ends[place],
            "status": status,
            "cancelled_at": at if status == CANCELLED else None,
            "change_kinds": kinds,
            "changed_fields": changed,
            "categories": [_NAMES[id_] for id_ in content["categories"]],
        }
