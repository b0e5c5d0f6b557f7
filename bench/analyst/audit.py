"""The look-ahead audit of a million rows: seconds and memory of a child process.

    python -m bench.analyst.audit [HOME] [--rows 1000000]

Without a home it makes one of 50,000 events and 700,000 versions in a year, which takes minutes.

The rows are uses of random events of the home at random instants since its first pull, with date,
impact and status from the table of today, as a back-test takes them that does not know of versions.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from bench.children import measure, print_figures

_ROWS = """
    SELECT
        e.event_id,
        p.first_at + (p.last_at - p.first_at) * r.share AS decided_at,
        e.date, e.impact, e.status
    FROM (
        SELECT i, random() AS share, floor(random() * n)::BIGINT AS place
        FROM range($rows::BIGINT) AS r (i), (SELECT count(*) AS n FROM events)
    ) AS r
    JOIN (SELECT *, row_number() OVER (ORDER BY event_id) - 1 AS place FROM events) AS e
        ON e.place = r.place,
    (SELECT min(observed_at) AS first_at, max(observed_at) AS last_at FROM coverage) AS p
    ORDER BY r.i
"""


def _make_rows(home: Path, rows: int, file: Path) -> None:
    import pyarrow.parquet as pq

    import almanac

    with almanac.open(home) as db:
        pq.write_table(db.sql(_ROWS, rows=rows).arrow(), file)


def _audit(home: Path, file: Path, basis: str) -> None:
    """Audit the rows of a file, and print the figures of this process."""
    import almanac

    started = perf_counter()
    with almanac.open(home) as db:
        found = db.audit(file, basis=basis)  # type: ignore[arg-type]
        counts = found.counts
    seconds = perf_counter() - started
    # Of the whole process, with its imports and all threads.
    print_figures(seconds=seconds, cpu_s=process_time(), rows=len(found), counts=counts)


def main() -> None:
    import pyarrow.csv
    import pyarrow.parquet

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path, nargs="?")
    sizes = {"events": 50_000, "versions": 700_000, "coins": 2_000, "days": 365}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, help="of a home that is made")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--basis", choices=("observed", "claimed"), default="observed")
    parser.add_argument("--file", type=Path, help="audit this file, in this process")
    given = parser.parse_args()
    if given.file is not None:
        _audit(given.home, given.file, given.basis)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.home is None:
            made = [f"--{name}={getattr(given, name)}" for name in sizes]
            measure("bench.analyst.homes", str(folder), *made, "--rows=1")
        home = given.home or folder / "home"
        parquet, csv = folder / "signals.parquet", folder / "signals.csv"
        _make_rows(home, given.rows, parquet)
        pyarrow.csv.write_csv(pyarrow.parquet.read_table(parquet), csv)
        for file in (parquet, csv):
            done = measure(
                *("bench.analyst.audit", str(home)),
                *("--file", str(file), "--basis", given.basis),
            )
            sys.stdout.write(
                f"{file.name}: {done.figures['rows']:,} rows in {done.seconds:.2f} s "
                f"({done.figures['cpu_s']:.2f} s of processor time), peak {done.peak_mb:,.0f} MB; "
                f"{done.figures['counts']}\n"
            )


if __name__ == "__main__":
    main()
