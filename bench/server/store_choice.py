"""The same questions asked of a view in memory and of DuckDB in this process, without HTTP.

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

from bench.server.asked import PageAsked, SearchAsked, Workload
from bench.server.peers.plain_rows import end_of
from bench.server.peers.rows import LONGEST_EVENT, Rows
from catalog.contract.windows import Window, day_end
from catalog.server.memory.view import MemoryView
from catalog.server.store import CoinQuery, EventQuery

AskedT = TypeVar("AskedT")
_SQL = Path(__file__).parent / "duckdb_sql"


class AnswersDifferError(Exception):
    """The two gave different rows to one question."""


@dataclass(frozen=True, slots=True)
class Asking:
    question: str
    memory_us: float
    """Median."""
    duckdb_us: float


def compare_stores(
    view: MemoryView, rows: Rows, workloads: Sequence[Workload], folder: Path, *, count: int
) -> list[Asking]:
    """Return the medians over `count` questions of each kind.

    Raises:
        AnswersDifferError: ids or totals differ.
    """
    asked = [request for load in workloads for request in load.requests]
    pages = [page for page in asked if isinstance(page, PageAsked) and page.after is None]
    searches = [search for search in asked if isinstance(search, SearchAsked)]
    kinds: dict[str, list[PageAsked]] = {
        "page of a range": [page for page in pages if not (page.coins or page.categories)],
        "page of coins": [page for page in pages if page.coins],
        "page of categories": [page for page in pages if page.categories],
    }
    with DuckDBStore(rows, folder) as store:
        done = [
            _asking(name, kind[:count], lambda page: _memory_page(view, page), store.page)
            for name, kind in kinds.items()
        ]
        search = _asking(
            "coin search", searches[:count], lambda asked: _memory_search(view, asked), store.search
        )
    return [*done, search]


class DuckDBStore:
    """Tables in memory, sorted by date, asked with bound values; whole rows are fetched."""

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

    def page(self, asked: PageAsked) -> tuple[list[str], int]:
        lower = datetime.fromisoformat(asked.lower)
        values: dict[str, object] = {
            "begun": lower - LONGEST_EVENT,
            "lower": lower,
            "upper": datetime.fromisoformat(end_of(asked.upper)).replace(tzinfo=None),
            "limit": asked.limit,
        }
        if asked.coins:
            return self._ask("page_of_coins", {**values, "names": list(asked.coins)})
        if asked.categories:
            return self._ask("page_of_categories", {**values, "names": list(asked.categories)})
        return self._ask("page", values)

    def search(self, asked: SearchAsked) -> tuple[list[str], int]:
        return self._ask("search", {"q": asked.q, "limit": asked.limit})

    def _ask(self, name: str, values: dict[str, object]) -> tuple[list[str], int]:
        found = self._connection.execute(self._sql[name], values).fetchall()
        return [row[0] for row in found], found[0][-1] if found else 0


def _memory_page(view: MemoryView, asked: PageAsked) -> tuple[list[str], int]:
    lower = datetime.fromisoformat(asked.lower).replace(tzinfo=UTC)
    query = EventQuery(
        Window(lower, day_end(date.fromisoformat(asked.upper))),
        coins=frozenset(asked.coins) or None,
        categories=frozenset(asked.categories) or None,
    )
    found = view.events(query, after=None, limit=asked.limit)
    return [event.id for event in found.events], found.total


def _memory_search(view: MemoryView, asked: SearchAsked) -> tuple[list[str], int]:
    found = view.coins(CoinQuery(q=asked.q), after=None, limit=asked.limit)
    return [coin.slug for coin in found.coins], found.total


def _asking(
    question: str,
    asked: Sequence[AskedT],
    memory: Callable[[AskedT], tuple[list[str], int]],
    database: Callable[[AskedT], tuple[list[str], int]],
) -> Asking:
    for request in asked:
        if memory(request) != database(request):
            raise AnswersDifferError(f"memory and DuckDB differ on {request}")
    return Asking(question, _median_us(asked, memory), _median_us(asked, database))


def _median_us(asked: Sequence[AskedT], ask: Callable[[AskedT], object]) -> float:
    taken: list[float] = []
    for request in asked:
        began = time.perf_counter()
        ask(request)
        taken.append(time.perf_counter() - began)
    return 1e6 * statistics.median(taken)
