"""The same queries of a view in memory and of DuckDB in this process, without HTTP.

Backs the decision to keep plain indexes in memory. One thread, on the load generator's core.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TypeVar

import duckdb
import msgspec

from bench.server.peers.plain_rows import end_of
from bench.server.peers.rows import LONGEST_EVENT, Rows
from bench.server.workloads import CoinSearch, EventsPage, Workload
from catalog.contract.plans import Window, day_end
from catalog.server.memory_view import MemoryView
from catalog.server.store import CoinQuery, EventQuery

RequestT = TypeVar("RequestT")
_SQL = Path(__file__).parent / "duckdb_sql"


class AnswersDifferError(Exception):
    """The two returned different rows for one query."""


@dataclass(frozen=True, slots=True)
class StoreTimes:
    question: str
    memory_us: float
    """Median."""
    duckdb_us: float


def compare_stores(
    view: MemoryView, rows: Rows, workloads: Sequence[Workload], folder: Path, *, count: int
) -> list[StoreTimes]:
    """Return the medians over `count` queries of each kind.

    Raises:
        AnswersDifferError: ids or totals differ.
    """
    requests = [request for load in workloads for request in load.requests]
    pages = [page for page in requests if isinstance(page, EventsPage) and page.after is None]
    searches = [search for search in requests if isinstance(search, CoinSearch)]
    kinds: dict[str, list[EventsPage]] = {
        "page of a range": [page for page in pages if not (page.coins or page.categories)],
        "page of coins": [page for page in pages if page.coins],
        "page of categories": [page for page in pages if page.categories],
    }
    with DuckDBStore(rows, folder) as store:
        done = [
            _measure(name, kind[:count], lambda page: _memory_page(view, page), store.page)
            for name, kind in kinds.items()
        ]
        search = _measure(
            "coin search",
            searches[:count],
            lambda request: _memory_search(view, request),
            store.search,
        )
    return [*done, search]


class DuckDBStore:
    """Tables in memory, sorted by date, queried with bound values; whole rows are fetched."""

    def __init__(self, rows: Rows, folder: Path) -> None:
        events, coins = folder / "events.ndjson", folder / "coins.ndjson"
        lines = msgspec.json.Encoder().encode_lines
        named = [
            {**event, "categories": [rows.category_id(name) for name in event["categories"]]}
            for event in rows.event_dicts()
        ]
        events.write_bytes(lines(named))
        coins.write_bytes(lines(rows.coin_dicts()))
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("SET threads = 1")
        for name, file in (("events", events), ("coins", coins)):
            self._connection.execute((_SQL / f"{name}.sql").read_text(), {"file": str(file)})
        self._sql = {path.stem: path.read_text() for path in _SQL.glob("*.sql")}

    def __enter__(self) -> "DuckDBStore":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def page(self, request: EventsPage) -> tuple[list[str], int]:
        lower = datetime.fromisoformat(request.lower)
        values: dict[str, object] = {
            "begun": lower - LONGEST_EVENT,
            "lower": lower,
            "upper": datetime.fromisoformat(end_of(request.upper)).replace(tzinfo=None),
            "limit": request.limit,
        }
        if request.coins:
            return self._query("page_of_coins", {**values, "names": list(request.coins)})
        if request.categories:
            return self._query("page_of_categories", {**values, "names": list(request.categories)})
        return self._query("page", values)

    def search(self, request: CoinSearch) -> tuple[list[str], int]:
        return self._query("search", {"q": request.q, "limit": request.limit})

    def _query(self, name: str, values: dict[str, object]) -> tuple[list[str], int]:
        found = self._connection.execute(self._sql[name], values).fetchall()
        return [row[0] for row in found], found[0][-1] if found else 0


def _memory_page(view: MemoryView, request: EventsPage) -> tuple[list[str], int]:
    lower = datetime.fromisoformat(request.lower).replace(tzinfo=UTC)
    query = EventQuery(
        Window(lower, day_end(date.fromisoformat(request.upper))),
        coins=frozenset(request.coins) or None,
        categories=frozenset(request.categories) or None,
    )
    found = view.events(query, after=None, limit=request.limit)
    return [event.id for event in found.events], found.total


def _memory_search(view: MemoryView, request: CoinSearch) -> tuple[list[str], int]:
    found = view.coins(CoinQuery(q=request.q), after=None, limit=request.limit)
    return [coin.slug for coin in found.coins], found.total


def _measure(
    question: str,
    requests: Sequence[RequestT],
    memory: Callable[[RequestT], tuple[list[str], int]],
    database: Callable[[RequestT], tuple[list[str], int]],
) -> StoreTimes:
    for request in requests:
        if memory(request) != database(request):
            raise AnswersDifferError(f"memory and DuckDB differ on {request}")
    return StoreTimes(question, _median_us(requests, memory), _median_us(requests, database))


def _median_us(requests: Sequence[RequestT], answer: Callable[[RequestT], object]) -> float:
    taken: list[float] = []
    for request in requests:
        began = time.perf_counter()
        answer(request)
        taken.append(time.perf_counter() - began)
    return 1e6 * statistics.median(taken)
