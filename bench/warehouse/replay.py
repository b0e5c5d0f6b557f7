"""`python -m bench.warehouse.replay`: a year of daily exports, folded again from landing.

It is compared with bare DuckDB reading the same files, each joined in full with the previous one.
Every tenth day has the same bytes as the day before.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import measure
from bench.report import parse_arguments, show
from bench.warehouse.exports import write_export

BAR = 1.2
_SAME_EVERY = 10


def main() -> None:
    size = parse_arguments(__doc__, events=50_000, days=365)
    with TemporaryDirectory(prefix="almanac-replay-", dir=size.folder) as temporary:
        folder = Path(temporary)
        exports = folder / "exports"
        exports.mkdir()
        for day in range(size.days):
            file = exports / f"{day:04}.csv"
            if day and day % _SAME_EVERY == 0:
                shutil.copyfile(exports / f"{day - 1:04}.csv", file)
            else:
                write_export(file, events=size.events, day=day)
        files = [str(path) for path in sorted(exports.glob("*.csv"))]
        home = str(folder / "home")
        measure("bench.warehouse.ours", "land", home, *files)
        measured = {
            "almanac": measure("bench.warehouse.ours", "replay", home),
            "bare diffs": measure("bench.warehouse.bare", "diffs", str(exports)),
        }
        ratio = measured["almanac"].seconds / measured["bare diffs"].seconds
        wrong = measure("bench.warehouse.ours", "verify", home).figures["wrong"]
        bars = {
            f"at most {BAR} x bare": f"{ratio:.2f}",
            "the output passes verify": "yes" if not wrong else f"NO: {wrong}",
        }
        title = f"replay: {size.days} exports of {size.events:,} events"
        show(title, measured, "almanac", bars, size.json)


if __name__ == "__main__":
    main()
