"""`python -m bench.server`: the sandbox and the mirror beside a bare handler and Datasette.

One run measures each server alone on one core, with the load generator on another. All servers must
return the same rows for a sample of the requests before one is timed. Then four processes send what
our limiter allows them. `--quick` takes a minute. It needs Linux.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
from rich.console import Console
from rich.table import Table

from bench.children import ChildFailed
from bench.homes import SOURCE, land_pages
from bench.server.limits import measure_limits
from bench.server.load import fetch_bodies, send_all
from bench.server.peers import DatasettePeer, Peer, Running, Shown, write_datasette_files
from bench.server.rows import NOW, SEED, Rows, read_sandbox_rows
from bench.server.workloads import EventsPage, WorkRequest, draw_workloads
from catalog.contract.constants import EVENTS_LIMIT_MAX
from catalog.contract.plans import ENTERPRISE, find_plan_window
from catalog.sandbox.sandbox import Sandbox
from warehouse.history.merge import merge
from warehouse.home import Home

SANDBOX: Final = "sandbox"
_PULLED_AT: Final = NOW - timedelta(hours=1)
_AS_OF: Final = NOW - timedelta(minutes=30)
_WARM_UP: Final = 300
_SAMPLE_SEED: Final = 11
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of one run."""

    requests: int
    sample: int
    """Requests of each workload whose rows are compared."""
    seconds: float
    limits_s: int


FULL: Final = Size(requests=10_000, sample=300, seconds=8.0, limits_s=60)
QUICK: Final = Size(requests=1_000, sample=50, seconds=1.0, limits_s=5)


@dataclass(frozen=True, slots=True)
class Lap:
    """One server on one workload."""

    server: str
    workload: str
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of the server, per request."""
    rss_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, with fewer requests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    with TemporaryDirectory(prefix="almanac-bench-") as folder:
        laps = list(run_laps(size, Path(folder), console))
        show_laps(laps, console)
        limits = measure_limits(Path(folder), size.limits_s, console)
    console.print(f"Load average at the end: {os.getloadavg()[0]:.2f}")
    if given.json is not None:
        results = {"laps": [asdict(lap) for lap in laps], "limits": limits}
        given.json.write_text(json.dumps(results, indent=1))


def run_laps(size: Size, folder: Path, console: Console) -> Iterator[Lap]:
    """Run each server alone on each workload.

    Raises:
        ChildFailed: two servers have different rows.
    """
    console.print("Preparing the rows, the mirror's home and Datasette's file ...")
    rows = read_sandbox_rows()
    workloads = draw_workloads(rows, size.requests)
    agreed: dict[WorkRequest, tuple[str, Shown]] = {}
    own_cores = os.sched_getaffinity(0)
    core, load_core = min(own_cores), max(own_cores)
    peers = make_peers(rows, folder)
    os.sched_setaffinity(0, {load_core})
    try:
        for peer in peers:
            with peer.start(core) as running:
                requests = list(chain.from_iterable(workloads.values()))
                peer.prepare(running, [each for each in requests if isinstance(each, EventsPage)])
                for workload in workloads.values():
                    _compare_rows(peer, running, workload, size.sample, agreed)
                for name, workload in workloads.items():
                    console.print(f"{peer.name}: {name} ...")
                    yield _run_lap(peer, running, name, workload, size.seconds)
    finally:
        os.sched_setaffinity(0, own_cores)


def make_peers(rows: Rows, folder: Path) -> tuple[Peer, ...]:
    """Write the files of the servers, and return the servers."""
    rows.save(folder / "rows.msgpack")
    write_datasette_files(rows, folder)
    warehouse = str(_publish_rows(folder / "home").warehouse)
    as_of = (f"x-as-of: {_AS_OF:%FT%TZ}",)
    return (
        Peer(SANDBOX, "sandbox"),
        Peer("mirror", "mirror", warehouse),
        Peer("mirror, as of", "mirror", warehouse, headers=as_of),
        Peer("bare handler", "bare", str(folder / "rows.msgpack")),
        DatasettePeer(folder),
    )


def _publish_rows(root: Path) -> Home:
    """Publish the rows that the key of the run sees: pulled once, and an hour later a page again.

    So `_AS_OF` is a past time at which all rows were known.
    """
    home = Home(root)
    home.claim(SOURCE)
    window = find_plan_window(ENTERPRISE, NOW)

    def land(feed: Any, pages: list[bytes]) -> None:
        land_pages(home, feed, _PULLED_AT, pages, plan="enterprise")

    with (
        Sandbox(seed=SEED, now=NOW, export_interval_s=0) as sandbox,
        httpx.Client(base_url=sandbox.base_url, verify=False, timeout=60.0) as client,
    ):
        client.headers["x-api-key"] = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        query = {"from": f"{window.lower:%F}", "limit": EVENTS_LIMIT_MAX}
        pages = list(_read_pages(client, "/v2/events", query))
        land("events", pages)
        land("coins", list(_read_pages(client, "/v2/coins", {"limit": 100})))
        land("categories", [client.get("/v2/categories").content])
    why = "a page of the list"
    land_pages(home, "events", NOW, pages[:1], plan="enterprise", why_incomplete=why)
    merge(home)
    return home


def _read_pages(client: httpx.Client, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        answer = client.get(path, params={**query, **cursor}).raise_for_status()
        yield answer.content
        following = answer.json()["meta"]["cursor"]
        cursor = {"cursor": following} if following else None


def _compare_rows(
    peer: Peer,
    running: Running,
    workload: Sequence[WorkRequest],
    count: int,
    agreed: dict[WorkRequest, tuple[str, Shown]],
) -> None:
    sample = random.Random(_SAMPLE_SEED).sample(list(workload), min(count, len(workload)))
    bodies = fetch_bodies(running.port, [peer.make_request(request) for request in sample])
    for request, body in zip(sample, bodies, strict=True):
        shown = peer.read_answer(request, body)
        first, expected = agreed.setdefault(request, (peer.name, shown))
        if shown != expected:
            raise ChildFailed(f"{peer.name} and {first} differ on {request}: {shown}, {expected}")


def _run_lap(
    peer: Peer, running: Running, name: str, workload: Sequence[WorkRequest], seconds: float
) -> Lap:
    requests = [peer.make_request(request) for request in workload]
    send_all(running.port, requests[-_WARM_UP:], for_s=seconds)
    cpu_s = running.cpu_s()
    times = send_all(running.port, requests, for_s=seconds)
    cpu_s = running.cpu_s() - cpu_s
    return Lap(
        server=peer.name,
        workload=name,
        per_s=times.per_s,
        p50_ms=times.quantile_ms(0.50),
        p99_ms=times.quantile_ms(0.99),
        cpu_us=1e6 * cpu_s / len(times.seconds),
        rss_mb=running.rss_mb(),
    )


def show_laps(laps: list[Lap], console: Console) -> None:
    """Print the laps, and how many times each server the sandbox is."""
    sandbox = {lap.workload: lap.per_s for lap in laps if lap.server == SANDBOX}
    table = Table("workload", "server", "per s", "sandbox is x", "p50 ms", "p99 ms", "CPU µs", "MB")
    for lap in sorted(laps, key=lambda lap: list(sandbox).index(lap.workload)):
        ratio = f"{sandbox[lap.workload] / lap.per_s:.2f}"
        figures = [f"{lap.p50_ms:.2f}", f"{lap.p99_ms:.2f}", f"{lap.cpu_us:,.0f}"]
        cells = [lap.workload, lap.server, f"{lap.per_s:,.0f}", ratio, *figures]
        table.add_row(*cells, f"{lap.rss_mb:,.0f}", end_section=lap.server == laps[-1].server)
    console.print(table)


if __name__ == "__main__":
    main()
