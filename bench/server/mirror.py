"""The mirror beside the sandbox on the same data, its memory and its start.

    python -m bench.server.mirror [--rounds 3] [--events 1000000] [--seconds 8] [--json FILE]

The same workloads and load generator as `python -m bench.server`; both servers must return the same
rows. `--events` is the size of a second home. Start: from the start of the process to the first
answer.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from bench.analyst.homes import publish_home
from bench.children import environment_without_settings
from bench.report import parse_arguments
from bench.server.peers.mirror_peer import AsOfPeer, MirrorPeer, publish_world
from bench.server.peers.our_peer import OurPeer
from bench.server.peers.rows import rows_of_run
from bench.server.process import Cores, Running
from bench.server.race import Lap, Pace, race
from bench.server.workloads import workloads
from warehouse.home import Home

_SHARE_BAR = 0.8
_START_BAR_S = 2.0
_MB = 1_000_000


def main() -> int:
    given = parse_arguments(
        __doc__ or "", rounds=3, events=1_000_000, requests=10_000, seconds=8, sample=300
    )
    cores = Cores.of_machine()
    os.sched_setaffinity(0, {cores.load})
    console = Console(highlight=False)
    with TemporaryDirectory(prefix="almanac-bench-", dir=given.folder) as folder:
        console.print("Publishing the world of the sandbox ...")
        home = publish_world(Path(folder) / "world")
        laps = _race(home, cores, given, console)
        starts = {"world": _measure_starts(home, given.rounds)}
        console.print(f"Publishing {given.events:,} events ...")
        large = _publish_large(Path(folder) / "large", given.events)
        starts[f"{given.events:,} events"] = _measure_starts(large, given.rounds)
    shares = _show_laps(laps, console)
    _show_starts(starts, console)
    console.print(f"Load average at the end: {os.getloadavg()[0]:.2f}")
    if given.json is not None:
        figures = {"laps": laps, "shares": shares, "starts": starts}
        given.json.write_text(json.dumps(figures, indent=1))
    return 0


def _race(home: Home, cores: Cores, given: Any, console: Console) -> dict[str, dict[str, float]]:
    """Return the middle of the requests per second, by workload and server."""
    loads = workloads(rows_of_run(), given.requests)
    pace = Pace(sample=given.sample, closed_s=float(given.seconds), open_s=1.0)
    laps: list[Lap] = []
    for _ in range(given.rounds):
        peers = (
            OurPeer(cores.server),
            MirrorPeer(home.warehouse, cores.server),
            AsOfPeer(home.warehouse, cores.server),
        )
        laps += race(peers, loads, pace, report_progress=console.print)
    found: dict[str, dict[str, float]] = {}
    for lap in laps:
        same = [
            each.per_s
            for each in laps
            if (each.server, each.workload) == (lap.server, lap.workload)
        ]
        found.setdefault(lap.workload, {})[lap.server] = median(same)
    return found


def _publish_large(root: Path, events: int) -> Home:
    home = publish_home(root, events=events, versions=events + events // 10, coins=3_000, days=20)
    if home.stamp() is None:
        home.claim("bench")
    return home


def _measure_starts(home: Home, rounds: int) -> dict[str, float]:
    """Return the seconds of the first and later starts, and MB once all is loaded and asked."""
    first = _measure_start(home)
    later = [_measure_start(home) for _ in range(rounds)]
    return {
        "first_s": first["seconds"],
        "later_s": median(each["seconds"] for each in later),
        "cpu_s": median(each["cpu_s"] for each in later),
        "mb": max(each["mb"] for each in later),
        "peak_mb": max(each["peak_mb"] for each in later),
    }


def _measure_start(home: Home) -> dict[str, float]:
    began = time.perf_counter()
    with _serving(home) as (process, base_url):
        with httpx.Client(base_url=base_url, verify=False, timeout=120.0) as client:
            client.get("/v2/events?limit=1").raise_for_status()
            seconds, cpu = time.perf_counter() - began, Running(process.pid, 0).cpu_s()
            for query in ("limit=100", "sortBy=impact_desc", "keyword=a"):
                client.get(f"/v2/events?from=2016-01-01&{query}").raise_for_status()
            client.get("/v2/coins?limit=100").raise_for_status()
        status = Path(f"/proc/{process.pid}/status").read_text()
        kilobytes = {
            name: int(value.split()[0])
            for name, _, value in (line.partition(":") for line in status.splitlines())
            if name in ("VmRSS", "VmHWM")
        }
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "mb": kilobytes["VmRSS"] * 1024 / _MB,
        "peak_mb": kilobytes["VmHWM"] * 1024 / _MB,
    }


@contextmanager
def _serving(home: Home) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `almanac serve` on a home; both cores, as a user runs it."""
    given = {**environment_without_settings(), "ALMANAC_HOME": str(home.root)}
    own = os.sched_getaffinity(0)
    command: Sequence[str] = (sys.executable, "-m", "application", "serve", "--port", "0", "--json")
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
        os.sched_setaffinity(0, own)
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["base_url"]
        finally:
            process.terminate()


def _show_laps(laps: dict[str, dict[str, float]], console: Console) -> dict[str, float]:
    """Print the requests per second; return the mirror's share of the sandbox's."""
    names = [OurPeer.name, MirrorPeer.name, AsOfPeer.name]
    table = Table("requests per second", *names, "mirror / sandbox")
    shares: dict[str, float] = {}
    for workload, per_s in laps.items():
        shares[workload] = per_s[MirrorPeer.name] / per_s[OurPeer.name]
        figures = [f"{per_s[name]:,.0f}" for name in names]
        table.add_row(workload, *figures, f"{shares[workload]:.2f}")
    console.print(table)
    holds = min(shares.values()) >= _SHARE_BAR
    console.print(f"Bar: at least {_SHARE_BAR} of the sandbox: {'holds' if holds else 'MISSED'}")
    return shares


def _show_starts(starts: dict[str, dict[str, float]], console: Console) -> None:
    table = Table("home", "first start s", "later start s", "cpu s", "MB", "peak MB")
    for name, found in starts.items():
        table.add_row(
            name,
            f"{found['first_s']:.2f}",
            f"{found['later_s']:.2f}",
            f"{found['cpu_s']:.2f}",
            f"{found['mb']:,.0f}",
            f"{found['peak_mb']:,.0f}",
        )
    console.print(table)
    slowest = max(max(found["first_s"], found["later_s"]) for found in starts.values())
    result = "holds" if slowest <= _START_BAR_S else "MISSED"
    console.print(f"Bar: a start in at most {_START_BAR_S:g} s: {result}")


if __name__ == "__main__":
    sys.exit(main())
