"""Rows read from Parquet in slices, beside the same rows in memory: seconds and peak memory.

    python -m bench.analyst.streamed [--rows 2000000]

`attach_known` writes a file; the audit counts and shows its first findings. Both forms must have
the same counts. Above --in-memory-max rows only the streamed form runs.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from almanac import open as open_warehouse
from bench.children import Stopwatch, measure, print_figures
from bench.report import parse_arguments, show

GROUP_ROWS = 1_000_000
COINS = 500
BAR_MB = 3_000
_PULLS = "SELECT epoch_us(min(observed_at)) AS a, epoch_us(max(observed_at)) AS b FROM coverage"


def write_rows(home: Path, folder: Path, rows: int) -> None:
    """Write bars and signals at random instants between the first and the last pull."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    with open_warehouse(home) as db:
        events = db.sql("SELECT event_id, date, impact FROM events ORDER BY event_id").arrow()
        coins = db.sql(f"SELECT slug FROM coins ORDER BY slug LIMIT {COINS}").arrow()["slug"]
        ((first, last),) = (row.values() for row in db.sql(_PULLS).rows())
    names = coins.combine_chunks()

    def instants(count: int) -> Any:
        return pa.array(random.integers(first, last, count)).cast(pa.timestamp("us", "UTC"))

    def bars(count: int) -> Any:
        codes = pa.array(random.integers(0, len(names), count).astype(np.int32))
        coin = pa.DictionaryArray.from_arrays(codes, names)
        return pa.table({"ts": instants(count), "coin": coin, "close": random.random(count)})

    def signals(count: int) -> Any:
        used = events.take(pa.array(random.integers(0, len(events), count)))
        return used.append_column("decided_at", instants(count))

    for name, make in (("bars", bars), ("signals", signals)):
        with pq.ParquetWriter(folder / f"{name}.parquet", make(0).schema) as writer:
            for begin in range(0, rows, GROUP_ROWS):
                writer.write_table(make(min(GROUP_ROWS, rows - begin)), GROUP_ROWS)


def run(what: str, home: Path, folder: Path) -> None:
    """Do one piece of the work, and print the figures of this process."""
    import pyarrow.parquet as pq

    bars, signals, into = (folder / f"{name}.parquet" for name in ("bars", "signals", "known"))
    watch = Stopwatch()
    with open_warehouse(home) as db:
        if what == "attach_streamed":
            counts: Any = {"rows": db.attach_known(bars, to=into)}
        elif what == "attach_in_memory":
            found = db.attach_known(pq.read_table(bars))
            pq.write_table(found, into)
            counts = {"rows": len(found)}
        else:
            source = signals if what == "audit_streamed" else pq.read_table(signals)
            audit = db.audit(source)
            repr(audit)
            counts = {"rows": len(audit), **audit.groups}
    figures = watch.figures()
    rate = round(counts["rows"] / figures["seconds"])
    print_figures(**figures, rows_per_second=rate, **counts)


def main() -> None:
    work = sys.argv[1:]
    if work and not work[0].startswith("-"):
        what, home, folder, *rows = work
        if what == "write":
            write_rows(Path(home), Path(folder), int(rows[0]))
            print_figures(seconds=0)
        else:
            run(what, Path(home), Path(folder))
        return
    compare()


def compare() -> None:
    size = parse_arguments(
        __doc__,
        events=5_000,
        versions=50_000,
        coins=1_000,
        days=180,
        rows=2_000_000,
        in_memory_max=20_000_000,
    )
    with TemporaryDirectory(prefix="almanac-streamed-", dir=size.folder) as temporary:
        folder = Path(temporary)
        made = [
            f"--{name}={getattr(size, name)}" for name in ("events", "versions", "coins", "days")
        ]
        measure("bench.analyst.homes", str(folder), *made, "--rows=1")
        home = folder / "home"
        measure("bench.analyst.streamed", "write", str(home), str(folder), str(size.rows))
        for what in ("attach", "audit"):
            forms = ["streamed", "in_memory"] if size.rows <= size.in_memory_max else ["streamed"]
            found = {
                form: measure("bench.analyst.streamed", f"{what}_{form}", str(home), str(folder))
                for form in forms
            }
            counts = [
                {name: n for name, n in run.figures.items() if isinstance(n, int)}
                for run in found.values()
            ]
            for each in counts:
                each.pop("rows_per_second")
            assert all(each == counts[0] for each in counts), counts
            bars = {f"at most {BAR_MB:,} MB": f"{found['streamed'].peak_mb:,.0f}"}
            show(f"{what}, {size.rows:,} rows of Parquet", found, "streamed", bars, size.json)


if __name__ == "__main__":
    main()
