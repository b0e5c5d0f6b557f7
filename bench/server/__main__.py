"""`python -m bench.server`: our server and its peers, on this machine, in one run."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console

from bench.server.export import exports
from bench.server.peers.bare_peer import BarePeer
from bench.server.peers.datasette_peer import DatasettePeer, make_datasette_folder
from bench.server.peers.our_peer import OurPeer
from bench.server.peers.peer import Peer
from bench.server.peers.rows import Rows, rows_of_run
from bench.server.process import Cores
from bench.server.race import Pace, ceiling, race
from bench.server.report import show
from bench.server.results import Results
from bench.server.slow import felt, seconds_until_closed
from bench.server.workloads import pages_of, workloads

_FILE_WIDTH = 100
_CEILING_BYTES = (1_000, 36_000)


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of one run."""

    requests: int
    pace: Pace
    slow_rounds: int
    slow_round_s: float
    give_up_s: float
    export_rows: int
    export_slow_s: float


FULL = Size(
    requests=10_000,
    pace=Pace(sample=300, closed_s=8.0, open_s=4.0),
    slow_rounds=2,
    slow_round_s=6.0,
    give_up_s=20.0,
    export_rows=1_000_000,
    export_slow_s=10.0,
)
QUICK = Size(
    requests=2_000,
    pace=Pace(sample=60, closed_s=1.0, open_s=0.5),
    slow_rounds=1,
    slow_round_s=2.0,
    give_up_s=7.0,
    export_rows=100_000,
    export_slow_s=2.0,
)


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    cores = Cores.of_machine()
    os.sched_setaffinity(0, {cores.load})
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    began = time.monotonic()
    with TemporaryDirectory(prefix="almanac-bench-") as folder:
        results = _measure(QUICK if arguments.quick else FULL, cores, Path(folder), console)
    show(results, cores, console)
    console.print(f"{time.monotonic() - began:.0f} seconds in all.")
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, fewer requests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    return parser.parse_args()


def _measure(size: Size, cores: Cores, folder: Path, console: Console) -> Results:
    load_average = os.getloadavg()[0]
    with console.status("") as status:
        report_progress = status.update
        report_progress("the rows of the world")
        rows = rows_of_run()
        loads = workloads(rows, size.requests)
        peers = _peers(rows, folder, cores)
        ceilings = {
            body_bytes: ceiling(
                cores.server, body_bytes=body_bytes, count=size.requests, for_s=size.pace.closed_s
            )
            for body_bytes in _CEILING_BYTES
        }
        laps = race(peers, loads, size.pace, report_progress=report_progress)
        ours = OurPeer(cores.server)
        with ours.start() as running:
            ours.learn(running, pages_of(loads))
            report_progress("slow connections: until they are closed")
            closed_after_s = asyncio.run(
                seconds_until_closed(
                    running.port, str(running.details["key"]), give_up_s=size.give_up_s
                )
            )
            mixed = [
                ours.request(request)
                for three in zip(*(load.requests for load in loads), strict=True)
                for request in three
            ]
            beside_slow = felt(
                running.port,
                lambda number: mixed[:number],
                core=cores.load,
                rounds=size.slow_rounds,
                for_s=size.slow_round_s,
                report_progress=report_progress,
            )
        return Results(
            settings={peer.name: peer.settings for peer in peers},
            load_average=load_average,
            ceiling_per_s=ceilings,
            laps=laps,
            given_up_after_s=size.give_up_s,
            closed_after_s=closed_after_s,
            felt=beside_slow,
            exports=exports(
                cores.server,
                rows=size.export_rows,
                slow_s=size.export_slow_s,
                report_progress=report_progress,
            ),
        )


def _peers(rows: Rows, folder: Path, cores: Cores) -> Sequence[Peer]:
    rows_file = folder / "rows.msgpack"
    rows.save(rows_file)
    make_datasette_folder(rows, folder)
    return (
        OurPeer(cores.server),
        DatasettePeer(folder, cores.server, tuned=False),
        DatasettePeer(folder, cores.server, tuned=True),
        BarePeer("json", rows_file, cores.server),
        BarePeer("msgspec", rows_file, cores.server),
    )


if __name__ == "__main__":
    sys.exit(main())
