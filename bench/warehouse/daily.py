"""`python -m bench.warehouse.daily`: the next day, with seven events in a thousand changed.

Our merge of the second export, and bare DuckDB reading both and joining them in full.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import Measured, measure
from bench.report import parse_arguments, show
from bench.warehouse.exports import write_export

BAR = 1.5


def main() -> None:
    size = parse_arguments(__doc__, events=1_000_000, rounds=2)
    with TemporaryDirectory(prefix="almanac-daily-", dir=size.folder) as temporary:
        folder = Path(temporary)
        exports = [folder / f"{day}.csv" for day in range(2)]
        for day, export in enumerate(exports):
            write_export(export, events=size.events, day=day)
        measure("bench.warehouse.ours", "load", str(folder / "first"), str(exports[0]))
        best: dict[str, Measured] = {}
        for place in range(size.rounds):
            home = folder / f"home{place}"
            shutil.copytree(folder / "first", home)
            runs = {
                "almanac": measure("bench.warehouse.ours", "daily", str(home), *map(str, exports)),
                "bare diff": measure("bench.warehouse.bare", "diff", *map(str, exports)),
            }
            for name, run in runs.items():
                if name not in best or run.seconds < best[name].seconds:
                    best[name] = run
        bare, ours = best["bare diff"].seconds, best["almanac"]
        wrong = measure("bench.warehouse.ours", "verify", str(home)).figures["wrong"]
        bars = {
            f"with publication at most {BAR} x bare": f"{ours.seconds / bare:.2f}",
            "merge (fold and commit) alone": f"{ours.figures['fold'] / bare:.2f} x bare, no bar",
            "the output passes verify": "yes" if not wrong else f"NO: {wrong}",
        }
        show(f"daily: {size.events:,} events, 0.7 % changed", best, "almanac", bars, size.json)


if __name__ == "__main__":
    main()
