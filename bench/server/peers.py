"""The compared servers: how each is started, and its requests and answers.

Ours and the bare handler have the interface of the service. Datasette serves the same rows from
SQLite, through canned queries of its JSON API.
"""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from bench.children import ChildFailed, make_environment
from bench.server.load import fetch_bodies
from bench.server.rows import LONGEST_EVENT, Rows, last_second, search_text
from bench.server.workloads import PAGE_LIMIT, CoinSearch, EventsPage, SingleEvent, WorkRequest

_HERE: Final = Path(__file__).parent
_START_TIMEOUT_S: Final = 60.0
_SETTINGS: Final = {
    "default_cache_ttl": 0,
    "allow_facet": 0,
    "suggest_facets": 0,
    "cache_size_kb": 200_000,
    "num_sql_threads": 0,  # SQL runs in the event loop, the fastest way on one core.
}
_PARAMETER: Final = re.compile(r":([a-z_]+)")
Query = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Running:
    """A server process that listens."""

    pid: int
    port: int
    key: str = ""

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Shown:
    """The content of an answer, for comparison: ids or slugs in order, the total of a list."""

    ids: tuple[str, ...]
    total: int | None = None


class Peer:
    """A server with the interface of the service. Subclasses change what differs."""

    def __init__(self, name: str, *words: str, headers: Sequence[str] = ()) -> None:
        """`words` are the arguments of `bench.server.serve`."""
        self.name = name
        self._words = words
        self._headers = tuple(headers)
        self._cursors: dict[EventsPage, str] = {}

    @contextmanager
    def start(self, core: int) -> Iterator[Running]:
        """Run the server on one core.

        Raises:
            ChildFailed: it did not start.
        """
        command = [sys.executable, "-m", "bench.server.serve", *self._words]
        with _run_pinned(core, command, has_pipes=True) as process:
            assert process.stdin is not None and process.stdout is not None
            if not (line := process.stdout.readline()):
                raise ChildFailed(f"{self.name} ended with {process.wait()}")
            details = json.loads(line)
            yield Running(process.pid, details["port"], details.get("key", ""))
            process.stdin.close()
            process.wait()

    def prepare(self, running: Running, pages: Sequence[EventsPage]) -> None:
        """Take the key, and the cursors of second pages; not timed."""
        if running.key:
            self._headers = (f"x-api-key: {running.key}",)
        second = [page for page in pages if page.after is not None]
        bodies = fetch_bodies(running.port, [self._get(*_list_events(page)) for page in second])
        for page, body in zip(second, bodies, strict=True):
            self._cursors[page] = json.loads(body)["meta"]["cursor"]

    def make_request(self, request: WorkRequest) -> bytes:
        match request:
            case EventsPage():
                path, query = _list_events(request)
                if request.after is not None:
                    query["cursor"] = self._cursors[request]
                return self._get(path, query)
            case SingleEvent(event_id):
                return self._get(f"/v2/events/{event_id}")
            case CoinSearch(q, limit):
                return self._get("/v2/coins", {"q": q, "limit": limit})

    def read_answer(self, request: WorkRequest, body: bytes) -> Shown:
        answer = json.loads(body)
        if isinstance(request, SingleEvent):
            slugs = [coin["slug"] for coin in answer["coins"]]
            return _show_event(answer["id"], slugs, answer["categories"])
        name = "id" if isinstance(request, EventsPage) else "slug"
        return Shown(tuple(row[name] for row in answer["data"]), answer["meta"]["total"])

    def _get(self, path: str, query: Query | None = None) -> bytes:
        """Return a keep-alive GET that accepts no compression."""
        target = f"{path}?{urlencode(query)}" if query else path
        lines = [f"GET {target} HTTP/1.1", "Host: 127.0.0.1", *self._headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _list_events(page: EventsPage) -> tuple[str, Query]:
    query: Query = {"from": page.lower, "to": page.upper, "limit": PAGE_LIMIT}
    if page.coins:
        query["coins"] = ",".join(page.coins)
    if page.categories:
        query["categories"] = ",".join(page.categories)
    return "/v2/events", query


def _show_event(event_id: str, slugs: Sequence[str], categories: Sequence[str]) -> Shown:
    """Return the id with its links: the single event must be served with them."""
    return Shown((f"{event_id} {','.join(sorted(slugs))} {sorted(categories)}",))


@contextmanager
def _run_pinned(
    core: int, command: Sequence[str], *, has_pipes: bool
) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE if has_pipes else subprocess.DEVNULL
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        stdin=pipe,
        stdout=pipe,
        stderr=None if has_pipes else subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


class DatasettePeer(Peer):
    """`datasette serve` on an immutable file, with canned queries."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Datasette")
        self._folder = folder

    @contextmanager
    def start(self, core: int) -> Iterator[Running]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        python, folder = make_environment(_HERE / "datasette.txt"), self._folder
        command = [str(python), "-m", "datasette", "serve", "-i", str(folder / "catalog.db")]
        command += ["--inspect-file", str(folder / "inspect.json"), "--port", str(port)]
        command += ["--metadata", str(folder / "metadata.json")]
        for name, value in _SETTINGS.items():
            command += ["--setting", name, str(value)]
        with _run_pinned(core, command, has_pipes=False) as process:
            give_up_at = time.monotonic() + _START_TIMEOUT_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > give_up_at:
                    raise ChildFailed("Datasette did not start listening")
                time.sleep(0.05)
            yield Running(process.pid, port)

    def prepare(self, running: Running, pages: Sequence[EventsPage]) -> None:
        """Nothing: a second page is found by its key."""

    def make_request(self, request: WorkRequest) -> bytes:
        match request:
            case EventsPage():
                name, query = _choose_page_query(request)
            case SingleEvent(event_id):
                name, query = "event", {"id": event_id}
            case CoinSearch(q, limit):
                name, query = "search", {"q": q, "limit": limit}
        return self._get(f"/catalog/{name}.json", {"_shape": "array", **query})

    def read_answer(self, request: WorkRequest, body: bytes) -> Shown:
        rows = json.loads(body)
        if isinstance(request, SingleEvent):
            slugs = [coin["slug"] for coin in json.loads(rows[0]["coins"])]
            return _show_event(rows[0]["id"], slugs, json.loads(rows[0]["categories"]))
        name = "id" if isinstance(request, EventsPage) else "slug"
        return Shown(tuple(row[name] for row in rows), rows[0]["total"] if rows else 0)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _choose_page_query(request: EventsPage) -> tuple[str, Query]:
    query: Query = {
        "begun": (date.fromisoformat(request.lower) - LONGEST_EVENT).isoformat(),
        "from": request.lower,
        "to": last_second(request.upper),
        "limit": PAGE_LIMIT,
    }
    if request.coins:
        return "page_of_coins", {**query, "coins": json.dumps(request.coins)}
    if request.categories:
        return "page_of_categories", {**query, "categories": json.dumps(request.categories)}
    if request.after is not None:
        after_date, after_id = request.after
        return "page_after", {**query, "after_date": after_date, "after_id": after_id}
    return "page", query


def write_datasette_files(rows: Rows, folder: Path) -> None:
    """Write the database, the counts that Datasette reads beside it, and the canned queries."""
    texts = {file.stem: file.read_text() for file in sorted((_HERE / "datasette").glob("*.sql"))}
    schema = texts.pop("schema")
    queries = {
        name: {"sql": text, "params": list(dict.fromkeys(_PARAMETER.findall(text)))}
        for name, text in texts.items()
    }
    metadata = {"databases": {"catalog": {"queries": queries}}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    path = folder / "catalog.db"
    with sqlite3.connect(path) as database:
        database.executescript(schema)
        for event in rows.events:
            dated = (event["date"], event["id"], event["dateEnd"])
            coins = sorted({coin["slug"] for coin in event["coins"]})
            _insert(database, "event_coins", [(slug, *dated) for slug in coins])
            categories = sorted({rows.category_ids[name] for name in event["categories"]})
            _insert(database, "event_categories", [(each, *dated) for each in categories])
            fields = [value for name, value in event.items() if name not in ("coins", "categories")]
            _insert(database, "events", [fields])
        names = [(category_id, name) for name, category_id in rows.category_ids.items()]
        _insert(database, "categories", names)
        coin_rows = [
            (place, search_text(coin), *coin.values()) for place, coin in enumerate(rows.coins)
        ]
        _insert(database, "coins", coin_rows)
    database.execute("ANALYZE")
    database.execute("VACUUM")
    counts = {
        name: {"count": database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]}
        for name in ("events", "event_coins", "event_categories", "categories", "coins")
    }
    database.close()
    inspect = {"catalog": {"hash": "0" * 64, "size": path.stat().st_size, "tables": counts}}
    (folder / "inspect.json").write_text(json.dumps(inspect))


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        database.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)
