"""Datasette over the same rows in SQLite, through canned queries of its JSON API."""

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.server.peers.peer import Shown, get
from bench.server.peers.plain_rows import end_of
from bench.server.peers.rows import LONGEST_EVENT, Rows
from bench.server.process import Running, foreign_server
from bench.server.workloads import CoinSearch, EventsPage, SingleEvent, WorkRequest

_SQL = Path(__file__).parent / "datasette_sql"
_QUERIES = {
    "page": ("begun", "from", "to", "limit"),
    "page_after": ("begun", "from", "to", "limit", "after_date", "after_id"),
    "page_of_coins": ("begun", "from", "to", "limit", "coins"),
    "page_of_categories": ("begun", "from", "to", "limit", "categories"),
    "event": ("id",),
    "search": ("q", "limit"),
}
_SETTINGS = {
    "default_cache_ttl": 0,
    "allow_facet": 0,
    "suggest_facets": 0,
    "cache_size_kb": 200_000,
}


class DatasettePeer:
    """Datasette as its own command runs it, or `tuned`: SQL in the event loop, no access log."""

    def __init__(self, folder: Path, core: int, *, tuned: bool) -> None:
        settings = {**_SETTINGS, "num_sql_threads": 0} if tuned else _SETTINGS
        named = ", ".join(f"{name} {value}" for name, value in settings.items())
        self.name = "Datasette tuned" if tuned else "Datasette"
        self.settings = (
            ("on uvicorn without access log" if tuned else "`datasette serve`")
            + "; immutable file with its inspect data, canned queries, `_shape=array`, "
            + f"covering indexes; {named}"
        )
        self._tuned = tuned
        self._folder = folder
        self._core = core
        self._settings = settings
        (folder / "settings.json").write_text(json.dumps(settings))

    def start(self) -> AbstractContextManager[Running]:
        return foreign_server(self._core, self._command)

    def learn(self, running: Running, pages: Sequence[EventsPage]) -> None:
        pass

    def request(self, request: WorkRequest) -> bytes:
        match request:
            case EventsPage():
                name, query = _page_query(request)
            case SingleEvent(event_id):
                name, query = "event", {"id": event_id}
            case CoinSearch(q, limit):
                name, query = "search", {"q": q, "limit": str(limit)}
        return get(f"/catalog/{name}.json?" + urlencode({"_shape": "array", **query}))

    def shown(self, request: WorkRequest, body: bytes) -> Shown:
        rows = json.loads(body)
        match request:
            case SingleEvent():
                coins = sorted(coin["slug"] for coin in json.loads(rows[0]["coins"]))
                categories = sorted(json.loads(rows[0]["categories"]))
                return Shown((f"{rows[0]['id']} {','.join(coins)} {categories}",))
            case EventsPage():
                name = "id"
            case CoinSearch():
                name = "slug"
        total = rows[0]["total"] if rows else 0
        return Shown(tuple(row[name] for row in rows), total)

    def _command(self, port: int) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(port)]
        if self._tuned:
            program = (sys.executable, "-m", "bench.server.peers.datasette_app")
            return [*program, str(self._folder), *address]
        files = [str(self._folder / name) for name in ("inspect.json", "metadata.json")]
        settings = [["--setting", name, str(value)] for name, value in self._settings.items()]
        return [
            *(sys.executable, "-m", "datasette", "serve", "-i", str(self._folder / "catalog.db")),
            *("--inspect-file", files[0], "--metadata", files[1], *address),
            *(word for setting in settings for word in setting),
        ]


def _page_query(request: EventsPage) -> tuple[str, dict[str, str]]:
    query = {
        "begun": (date.fromisoformat(request.lower) - LONGEST_EVENT).isoformat(),
        "from": request.lower,
        "to": end_of(request.upper),
        "limit": str(request.limit),
    }
    if request.coins:
        return "page_of_coins", {**query, "coins": json.dumps(request.coins)}
    if request.categories:
        return "page_of_categories", {**query, "categories": json.dumps(request.categories)}
    if request.after is not None:
        after_date, after_id = request.after
        return "page_after", {**query, "after_date": after_date, "after_id": after_id}
    return "page", query


def make_datasette_folder(rows: Rows, folder: Path) -> None:
    """Write the database, the counts that Datasette reads beside it, and the canned queries."""
    queries = {
        name: {"sql": (_SQL / f"{name}.sql").read_text(), "params": parameters}
        for name, parameters in _QUERIES.items()
    }
    metadata = {"databases": {"catalog": {"queries": queries}}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    path = folder / "catalog.db"
    with sqlite3.connect(path) as database:
        database.executescript((_SQL / "schema.sql").read_text())
        for event in rows.event_dicts():
            dated = (event["date"], event["id"], event["dateEnd"])
            coins = {coin["slug"] for coin in event["coins"]}
            _insert(database, "event_coins", [(slug, *dated) for slug in sorted(coins)])
            tags = sorted({rows.category_id(name) for name in event["categories"]})
            _insert(database, "event_categories", [(tag, *dated) for tag in tags])
            fields = [value for name, value in event.items() if name not in ("coins", "categories")]
            _insert(database, "events", [fields])
        names = [(category_id, name) for name, category_id in rows.category_ids.items()]
        _insert(database, "categories", names)
        for place, coin in enumerate(rows.coin_dicts()):
            text = f"{coin['name']}\n{coin['symbol']}".casefold()
            _insert(database, "coins", [(place, text, *coin.values())])
    database.execute("ANALYZE")
    database.execute("VACUUM")
    tables = ("events", "event_coins", "event_categories", "categories", "coins")
    counts = {
        name: {"count": database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]}
        for name in tables
    }
    database.close()
    inspect = {"catalog": {"hash": "0" * 64, "size": path.stat().st_size, "tables": counts}}
    (folder / "inspect.json").write_text(json.dumps(inspect))


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        database.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)
