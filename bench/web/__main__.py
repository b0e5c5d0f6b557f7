"""`python -m bench.web HOME`: the time of each page, beside a bare route of the same size.

A page is requested with varied parameters, half of the requests as of a past time. The server and
the bare one are processes of their own; requests are sent one after another on one connection.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.table import Table

import almanac
from almanac.database import Database
from bench.children import environment_without_settings

BAR_MS = 100.0
_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class PageTimes:
    """The milliseconds of the requests for a page, and of a bare route of its median size."""

    page: str
    requests: int
    bytes: int
    p50_ms: float
    p95_ms: float
    bare_p50_ms: float
    bare_p95_ms: float

    @property
    def ratio(self) -> float:
        return self.p50_ms / self.bare_p50_ms


class Addresses:
    """Makes addresses of pages with parameters that occur in a warehouse."""

    def __init__(self, database: Database, seed: int) -> None:
        self._chance = Random(seed)
        # Known from the first pull on, so that each page as of a past time has an answer.
        self._events = self._list(
            database,
            "SELECT event_id FROM events WHERE first_seen_at = "
            "(SELECT min(first_seen_at) FROM events) ORDER BY hash(event_id) LIMIT 2000",
        )
        self._coins = self._list(
            database,
            "SELECT coin FROM event_coins GROUP BY coin ORDER BY count(*) DESC, coin LIMIT 500",
        )
        self._categories = self._list(
            database, "SELECT category FROM event_categories GROUP BY ALL ORDER BY ALL"
        )
        (span,) = database.sql(
            "SELECT min(observed_at) AS first, max(observed_at) AS last FROM batches "
            "WHERE status = 'merged' AND feed IN ('export', 'events')"
        ).rows()
        self._first: datetime = span["first"]
        self._span: timedelta = span["last"] - span["first"]

    def pages(self) -> dict[str, Callable[[], str]]:
        """Return a function for each page that returns an address with other parameters."""
        return {
            "/": lambda: self._address(
                "/",
                when=self._pick("7d", "30d", "90d", "next-week", "all"),
                category=self._pick(None, None, *self._categories),
                impact=self._pick(None, "2.5", "High"),
                dates=self._pick(None, "exact", "estimated"),
            ),
            "/?coin=": lambda: self._address("/", coin="slug:" + self._chance.choice(self._coins)),
            "/event/…": lambda: self._address("/event/" + quote(self._chance.choice(self._events))),
            "/coins": lambda: self._address("/coins", q=self._pick(None, "a", "bit")),
            "/coin/…": lambda: self._address("/coin/" + quote(self._chance.choice(self._coins))),
            "/changes": lambda: self._address(
                "/changes",
                last=self._pick("pull", "1d", "7d"),
                category=self._pick(None, None, *self._categories),
                impact=self._pick(None, "High"),
            ),
            "/changes?kind=": lambda: self._address(
                "/changes", kind=self._pick("rescheduled", "created", "rescored", "revealed")
            ),
            "/quality": lambda: self._address("/quality"),
            "/calendar": lambda: self._address("/calendar"),
        }

    def _address(self, path: str, **parameters: str | None) -> str:
        if self._chance.random() < 0.5:
            at = self._first + self._span * self._chance.random()
            parameters["as_of"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        given = {name: value for name, value in parameters.items() if value is not None}
        return path + (f"?{urlencode(given)}" if given else "")

    def _pick(self, *choices: str | None) -> str | None:
        return self._chance.choice(choices)

    @staticmethod
    def _list(database: Database, sql: str) -> list[str]:
        return [str(next(iter(row.values()))) for row in database.sql(sql).rows()]


@contextmanager
def run_server(command: list[str], environment: dict[str, str]) -> Iterator[HTTPConnection]:
    """Start a server that prints its port or address as JSON; yield a connection to it."""
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["base_url"]
        connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
        try:
            yield connection
        finally:
            connection.close()
    finally:
        server.terminate()
        server.wait(30)


def time_requests(connection: HTTPConnection, paths: list[str]) -> tuple[list[float], list[int]]:
    """Return the milliseconds and the bytes of each answer.

    Raises:
        SystemExit: an answer has another status than 200.
    """
    times, sizes = [], []
    connection.close()  # The server has closed it if it was idle; the next request opens it.
    for number, path in enumerate(paths):
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            sys.exit(f"{path}: expected 200, got {answer.status}. Nothing was measured.")
        if number >= _WARM_UP:
            times.append(took * 1e3)
            sizes.append(len(body))
    return times, sizes


def measure_pages(home: Path, requests: int, seed: int) -> list[PageTimes]:
    """Return the times of each page of a home, over so many requests."""
    with almanac.open(home) as database:
        pages = Addresses(database, seed).pages()
    environment = environment_without_settings()
    found = []
    with TemporaryDirectory(prefix="almanac-bench-") as folder:
        serve = [
            sys.executable,
            "-m",
            "application",
            "serve",
            "--port",
            "0",
            "--json",
            "--dir",
            folder,
        ]
        bare = [sys.executable, "-m", "bench.web.bare_route"]
        with (
            run_server(serve, {**environment, "ALMANAC_HOME": str(home)}) as site,
            run_server(bare, environment) as constant,
        ):
            for name, make_address in pages.items():
                paths = [make_address() for _ in range(requests + _WARM_UP)]
                times, sizes = time_requests(site, paths)
                size = round(median(sizes))
                bare_times, _ = time_requests(constant, [f"/?bytes={size}"] * len(paths))
                found.append(
                    PageTimes(name, requests, size, *_quantiles(times), *_quantiles(bare_times))
                )
    return found


def _quantiles(times: list[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=20)
    return cuts[9], cuts[18]


def show(found: list[PageTimes], console: Console) -> None:
    """Print a line per page, and the pages above the bar."""
    table = Table("Page", "kB", "p50 ms", "p95 ms", "bare p50", "bare p95", "ratio")
    for page in found:
        numbers = (page.p50_ms, page.p95_ms, page.bare_p50_ms, page.bare_p95_ms)
        table.add_row(
            page.page,
            f"{page.bytes / 1e3:.0f}",
            *(f"{number:.1f}" for number in numbers),
            f"{page.ratio:.0f}",
        )
    console.print(table)
    slow = [page.page for page in found if page.p95_ms > BAR_MS]
    console.print(f"p95 above {BAR_MS:.0f} ms: {', '.join(slow) or 'none'}")
    console.print(f"Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> int:
    """Measure and print; 1 if the p95 of a page is above 100 ms."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("home", type=Path, help="a filled home; nothing is written to it")
    parser.add_argument("--requests", type=int, default=200, help="of each page")
    parser.add_argument("--seed", type=int, default=37)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    found = measure_pages(arguments.home, arguments.requests, arguments.seed)
    show(found, Console(width=None if sys.stdout.isatty() else 100))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(page) for page in found], indent=2) + "\n")
    return int(any(page.p95_ms > BAR_MS for page in found))


if __name__ == "__main__":
    sys.exit(main())
