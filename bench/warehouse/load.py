"""`python -m bench.warehouse.load`: one large export, from its bytes to published tables.

It is compared with bare DuckDB, which writes the same outputs, and dlt, which loads one table. All
run in turn, each in its own process.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import Measured, measure
from bench.report import parse_arguments, show
from bench.warehouse.exports import write_export

BAR = 1.3
BAR_MB = 1_500


def main() -> None:
    size = parse_arguments(__doc__, events=1_000_000, rounds=2)
    with TemporaryDirectory(prefix="almanac-load-", dir=size.folder) as temporary:
        folder = Path(temporary)
        export = folder / "export.csv"
        write_export(export, events=size.events)
        best: dict[str, Measured] = {}
        for place in range(size.rounds):
            home = folder / f"home{place}"
            runs = {
                "almanac": measure("bench.warehouse.ours", "load", str(home), str(export)),
                "bare DuckDB": measure(
                    "bench.warehouse.bare", "load", str(export), str(folder / "bare")
                ),
                "dlt": measure(
                    "bench.warehouse.dlt_load", str(export), str(folder / f"dlt{place}")
                ),
            }
            for name, run in runs.items():
                if name not in best or run.seconds < best[name].seconds:
                    best[name] = run
        wrong = measure("bench.warehouse.ours", "verify", str(home)).figures["wrong"]
        ratio = best["almanac"].seconds / best["bare DuckDB"].seconds
        bars = {
            f"at most {BAR} x bare DuckDB": f"{ratio:.2f}",
            f"at most {BAR_MB} MB": f"{best['almanac'].peak_mb:,.0f}",
            "the output passes verify": "yes" if not wrong else f"NO: {wrong}",
        }
        title = f"load: an export of {size.events:,} rows, {export.stat().st_size / 1e6:,.0f} MB"
        show(title, best, "almanac", bars, size.json)


if __name__ == "__main__":
    main()
