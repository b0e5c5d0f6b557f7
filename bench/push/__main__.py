"""`python -m bench.push`: what `almanac receive` bears, and how soon a delivery is a row.

Durable acknowledgements beside a bare loop of group commits on the same disk; 500 slow connections;
3,500 deliveries at once and in a few minutes while a merge runs; the time from POST to row.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.children import measure
from bench.push.at_once import own_connections
from bench.push.deliveries import Deliveries
from bench.push.freshness import waits
from bench.push.receiver import SOURCE, Receiver, daemon, group_sizes, merges, receiver
from bench.server.load import Times, all_at_once, closed_loop, open_loop
from bench.server.slow import felt
from bench.warehouse.homes import make_home
from warehouse.history.merge import merge
from warehouse.home import Home

PARTS: Final = ("acknowledged", "slow", "bursts", "merge", "dagster")
CONNECTIONS: Final = (32, 128)
BURST: Final = 3_500
OWN_CONNECTIONS: Final = "each its own connection"
STATUS: Final = 204
_WIDTH: Final = 120
_MEMORY_DISKS: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a run. The burst of minutes is sent at `burst_per_s`, faster than it comes."""

    rounds: int
    round_s: int
    slow_rounds: int
    slow_round_s: float
    burst: int
    burst_per_s: float
    events: int
    merged: int
    by_dagster: int


FULL: Final = Size(
    rounds=3,
    round_s=6,
    slow_rounds=3,
    slow_round_s=10.0,
    burst=BURST,
    burst_per_s=100.0,
    events=50_000,
    merged=25,
    by_dagster=10,
)
QUICK: Final = Size(
    rounds=1,
    round_s=2,
    slow_rounds=1,
    slow_round_s=3.0,
    burst=700,
    burst_per_s=100.0,
    events=2_000,
    merged=5,
    by_dagster=0,
)


class Bench:
    """One run: a folder on a real disk, and the figures of each part."""

    def __init__(self, folder: Path, size: Size, console: Console) -> None:
        self._folder = folder
        self._size = size
        self._console = console
        self._homes = 0

    def acknowledged(self) -> list[dict[str, Any]]:
        """Return, for each number of connections, acknowledgements/s beside the bare loop's."""
        rows = []
        for connections in CONNECTIONS:
            rounds = [self._acknowledged(connections) for _ in range(self._size.rounds)]
            ours = max(rounds, key=lambda row: float(row["per_s"]))
            bare = max(float(row["bare_per_s"]) for row in rounds)
            rows.append({**ours, "bare_per_s": bare, "share": ours["per_s"] / bare})
        return rows

    def slow(self) -> dict[str, Any]:
        """Return the times of ordinary deliveries, beside slow connections and without."""
        with receiver(self._home()) as running:
            deliveries = Deliveries(running.path)
            figures = felt(
                running.port,
                deliveries.requests,
                route=f"POST {running.path}",
                expected=STATUS,
                rounds=self._size.slow_rounds,
                for_s=self._size.slow_round_s,
                report_progress=lambda _: None,
            )
        return {**asdict(figures), "ratio": figures.ratio}

    def bursts(self) -> list[dict[str, Any]]:
        """Return the times of acknowledgements in bursts while a merge runs.

        `batches` is how many batches were landed meanwhile, each of which was merged.
        """
        rows = []
        for where in ("another process", "the receiver"):
            home = self._aged_home()
            own = where == "the receiver"
            merging = nullcontext() if own else merges(home)
            with receiver(home, *(["--merge"] if own else [])) as running, merging:
                deliveries = Deliveries(running.path)
                for how, send in self._ways(running.port):
                    before = _batches(home)
                    rounds = [
                        self._burst(running, deliveries, send) for _ in range(self._size.rounds)
                    ]
                    best = min(rounds, key=lambda times: times.quantile_ms(0.99))
                    rows.append(
                        {
                            **{"merge": where, "burst": how, **_figures(best)},
                            "worst_p99_ms": max(times.quantile_ms(0.99) for times in rounds),
                            "batches": _batches(home) - before,
                        }
                    )
        return rows

    def merge(self) -> dict[str, float]:
        """Return the seconds from POST to row, merged by `almanac receive --merge`."""
        home = self._aged_home()
        with receiver(home, "--merge") as running:
            return waits(
                home, running, number=self._size.merged, gap_max_s=6.0, give_up_s=120.0
            ).figures()

    def dagster(self) -> dict[str, float]:
        """Return the seconds from POST to row, merged by the daemon of Dagster."""
        if not self._size.by_dagster:
            return {}
        home = self._aged_home()
        with daemon(home), receiver(home) as running:
            return waits(
                home, running, number=self._size.by_dagster, gap_max_s=120.0, give_up_s=600.0
            ).figures()

    def _acknowledged(self, connections: int) -> dict[str, Any]:
        home, seconds = self._home(), self._size.round_s
        with receiver(home) as running:
            deliveries = Deliveries(running.path)
            requests = deliveries.requests(6_000 * seconds)
            closed_loop(running.port, requests[:500], for_s=9.0, expected=STATUS)
            times = closed_loop(
                running.port,
                requests[500:],
                for_s=seconds,
                connections=connections,
                expected=STATUS,
            )
        stored, group = group_sizes(home, newest=len(times.seconds))
        assert stored == 500 + len(times.seconds)
        bare = measure(
            "bench.push.bare",
            *(str(home.root / "bare.sqlite"), str(round(group)), str(len(requests[0]))),
            str(seconds),
        )
        return {
            "connections": connections,
            **_figures(times),
            "group": group,
            "bare_per_s": bare.figures["per_s"],
        }

    def _burst(
        self,
        running: Receiver,
        deliveries: Deliveries,
        send: Callable[[Sequence[bytes]], Times],
    ) -> Times:
        requests = deliveries.requests(self._size.burst)
        # What starts a merge in the receiver, so that one runs during the burst.
        closed_loop(running.port, deliveries.requests(3), for_s=1.0, expected=STATUS)
        return send(requests)

    def _ways(self, port: int) -> list[tuple[str, Callable[[Sequence[bytes]], Times]]]:
        size = self._size
        return [
            (
                f"{size.burst_per_s:g}/s",
                lambda requests: open_loop(
                    port,
                    requests,
                    rate_per_s=size.burst_per_s,
                    for_s=size.burst / size.burst_per_s,
                    expected=STATUS,
                ),
            ),
            (
                "at once, 128 connections",
                lambda requests: all_at_once(port, requests, connections=128, expected=STATUS),
            ),
            (
                f"at once, {OWN_CONNECTIONS}",
                lambda requests: own_connections(port, requests, expected=STATUS),
            ),
        ]

    def _home(self) -> Home:
        self._homes += 1
        home = Home(self._folder / str(self._homes) / "home")
        home.claim(SOURCE)
        return home

    def _aged_home(self) -> Home:
        """Return a published home of some age."""
        home, events = self._home(), self._size.events
        make_home(
            home,
            events=events,
            versions=events * 6 // 5,
            coins=events * 64 // 1_000,
            days=30,
            source=SOURCE,
        )
        merge(home)
        return home


def main() -> None:
    arguments = _arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with TemporaryDirectory(prefix="almanac-push-", dir=arguments.folder) as temporary:
        _refuse_memory(Path(temporary))
        bench = Bench(Path(temporary), QUICK if arguments.quick else FULL, console)
        for part in arguments.only or PARTS:
            load = os.getloadavg()[0]
            figures[part] = getattr(bench, part)()
            _show(console, f"{part}   load average {load:.2f} before", figures[part])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.push", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quick look, no figures")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument("--folder", type=Path, help="where to work; else a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args()


def _refuse_memory(folder: Path) -> None:
    """Raises SystemExit: what is written in this folder never reaches a disk."""
    output = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if output in _MEMORY_DISKS:
        raise SystemExit(f"{folder} is in memory ({output}). Give a folder on a disk: --folder")


def _batches(home: Home) -> int:
    return len(list((home.root / "landing" / "batches").glob("*/*-deliveries-*")))


def _figures(times: Times) -> dict[str, float]:
    return {
        "per_s": times.per_s,
        "p50_ms": times.quantile_ms(0.50),
        "p99_ms": times.quantile_ms(0.99),
        "max_ms": times.quantile_ms(1.0),
    }


def _show(console: Console, title: str, figures: Any) -> None:
    rows = figures if isinstance(figures, list) else [figures]
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(_short(value) for value in row.values()))
    console.print(table)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return str(value)


if __name__ == "__main__":
    main()
