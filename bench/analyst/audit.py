"""The look-ahead audit of a million rows: seconds and memory of a child process.

    python -m bench.analyst.audit HOME [--rows 1000000]

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--basis", choices=("observed", "claimed"), default="observed")
    parser.add_argument("--file", type=Path, help="audit this file, in this process")
    given = parser.parse_args()
    if given.file is not None:
        _audit(given.home, given.file, given.basis)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("rows.parquet", "rows.csv"):
            file = Path(folder) / name
            if name.endswith("parquet"):
                _make_rows(given.home, given.rows, file)
            else:
                import pyarrow.csv
                import pyarrow.parquet as pq

                pyarrow.csv.write_csv(pq.read_table(file.with_suffix(".parquet")), file)
            words = (str(given.home), "--file", str(file), "--basis", given.basis)
            done = measure("bench.analyst.audit", *words)
            sys.stdout.write(
                f"{name}: {done.figures['rows']:,} rows in {done.seconds:.2f} s "
                f"({done.figures['cpu_s']:.2f} s of processor time), peak {done.peak_mb:,.0f} MB; "
                f"{done.figures['counts']}\n"
            )


if __name__ == "__main__":
    main()
