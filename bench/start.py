"""How long commands take to start, beside Python alone and the libraries of the command line.

    python -m bench.start [--starts 10] [--json FILE]

Each command is started several times, in turns, on a home with one landed batch of each feed. Times
are of the wall clock, from the start of the process to its end, in seconds. `cpu` is the processor
time of the process, which other work on the machine affects least.
"""

import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.children import Measured, environment_without_settings
from bench.report import parse_arguments, show
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

ALMANAC = [sys.executable, "-m", "application"]
STARTED = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import typer, rich'": [sys.executable, "-c", "import typer, rich"],
    "python -c 'import almanac'": [sys.executable, "-c", "import almanac"],
    "almanac.open(home)": [sys.executable, "-c", "import almanac; almanac.open(HOME)"],
    "almanac --help": [*ALMANAC, "--help"],
    "almanac status": [*ALMANAC, "status"],
    "almanac status --help": [*ALMANAC, "status", "--help"],
    "almanac sql 'SELECT 1'": [*ALMANAC, "sql", "SELECT 1"],
    "almanac changes": [*ALMANAC, "changes"],
    "almanac budget": [*ALMANAC, "budget"],
    "almanac batches list": [*ALMANAC, "batches", "list"],
    "almanac doctor --help": [*ALMANAC, "doctor", "--help"],
    "almanac run --help": [*ALMANAC, "run", "--help"],
    "almanac sandbox --help": [*ALMANAC, "sandbox", "--help"],
    "almanac accounts keys --help": [*ALMANAC, "accounts", "keys", "--help"],
}
BARS = {"bar": "each command in at most 0.4 s"}


def main() -> None:
    arguments = parse_arguments(__doc__ or "", starts=10)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        home = home_in(Path(folder) / "data")
        state = str(Path(folder) / "state")
        ours = {"ALMANAC_HOME": str(home), "ALMANAC_STATE": state, "ALMANAC_PLAN": "elite"}
        given = {**environment_without_settings(), **ours}
        seconds: dict[str, list[float]] = {name: [] for name in STARTED}
        cpu: dict[str, list[float]] = {name: [] for name in STARTED}
        for _ in range(arguments.starts):
            for name, command in STARTED.items():
                began, used = perf_counter(), used_by_children()
                words = [word.replace("HOME", repr(str(home))) for word in command]
                subprocess.run(words, env=given, check=True, stdout=subprocess.DEVNULL)
                seconds[name].append(perf_counter() - began)
                cpu[name].append(used_by_children() - used)
    measured = {
        name: Measured(
            {"seconds": median(taken), "shortest": min(taken), "cpu": median(cpu[name])}, 0.0
        )
        for name, taken in seconds.items()
    }
    title = f"Starts, the median of {arguments.starts}"
    show(title, measured, "almanac status", BARS, arguments.json)


def used_by_children() -> float:
    """Return the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def home_in(folder: Path) -> Path:
    """Return a new home with an empty batch of each feed, merged."""
    home, at = Home(folder), datetime.now(UTC)
    home.claim("sandbox:1")
    feeds: tuple[Feed, ...] = ("export", "events", "cancellations", "coins", "categories")
    for feed in feeds:
        home.landing.land(
            Pull(
                feed=feed,
                scope=Scope(),
                plan="elite",
                source="sandbox:1",
                observed_at=at,
                content_at=at,
                landed_at=at,
                requests=1,
            ),
            [(b'{"data": []}', None)],
        )
    merge(home)
    return home.root


if __name__ == "__main__":
    main()
