"""Bare DuckDB doing the work of a merge: one script, typed columns, no checks, no rules.

It writes the same outputs as ours, synced to the disk like ours: change log, checkpoint, events by
month, warehouse. Claims are a view, so it has none. It omits the landed body, rejects, staleness,
unknown fields, canonical text, chain and crash safety. Run as a child: it prints its seconds, by
the clock and of the processor.
"""

import argparse
import shutil
from pathlib import Path
from typing import Final

import duckdb

from bench.children import Stopwatch, print_figures
from warehouse.files.storage import sync

_TYPED: Final = """
SELECT
    id AS event_id, slug, title, description, "displayedDate" AS displayed_date,
    "date"::TIMESTAMPTZ AS date, "dateEnd"::TIMESTAMPTZ AS date_end, "dateType" AS date_type,
    "isEstimated"::BOOLEAN AS is_estimated, string_split(categories, ';') AS categories,
    string_split(coins, ';') AS coins, impact::DOUBLE AS impact,
    CASE WHEN impact::DOUBLE < 2.5 THEN 'Low' WHEN impact::DOUBLE < 5 THEN 'Mid'
         WHEN impact::DOUBLE < 7.5 THEN 'High' ELSE 'Critical' END AS impact_band,
    "impactSummary" AS impact_summary, "sourceUrl" AS source_url, "snapshotUrl" AS snapshot_url,
    "lastVerifiedAt"::TIMESTAMPTZ AS last_verified_at, "createdAt"::TIMESTAMPTZ AS created_at,
    "updatedAt"::TIMESTAMPTZ AS updated_at
FROM read_csv($file, all_varchar = true, header = true, delim = ',', quote = '"', escape = '"')
"""
_DATED: Final = """
SELECT
    *,
    CASE WHEN date_type <> 'date' THEN date_type WHEN is_estimated THEN 'deadline'
         WHEN epoch_us(date) % 86400000000 = 0 THEN 'day' ELSE 'instant' END AS date_precision,
    CASE WHEN date_type <> 'date' THEN date_trunc(date_type, date)
         WHEN NOT is_estimated THEN date END AS earliest,
    greatest(date, date_end) + INTERVAL 1 SECOND AS latest,
    concat(displayed_date, ' ', year(date)) AS displayed_date_full
FROM
"""
_LOAD: Final = (
    f"""CREATE TABLE events AS
    SELECT *, 'scheduled' AS status, now() AS first_seen_at FROM ({_TYPED})""",
    "CREATE TABLE versions AS SELECT *, 1 AS version, now() AS known_from FROM events",
    f"CREATE TABLE out.event_versions AS {_DATED} versions",
    "COPY versions TO $changes (FORMAT parquet, COMPRESSION zstd)",
    "COPY events TO $checkpoint (FORMAT parquet, COMPRESSION zstd)",
    f"CREATE TABLE out.events AS {_DATED} events",
    """COPY (SELECT *, strftime(date, '%Y-%m') AS event_month FROM out.events)
    TO $months (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (event_month))""",
    "CREATE TABLE out.event_coins AS SELECT event_id, unnest(coins) AS coin FROM events",
    """CREATE TABLE out.event_categories AS
    SELECT event_id, unnest(categories) AS category FROM events""",
    "CHECKPOINT out",
    "DETACH out",
)
_DIFF: Final = (
    f"CREATE TABLE before AS {_TYPED.replace('$file', '$before')}",
    f"CREATE TABLE after AS {_TYPED}",
    """CREATE TABLE changes AS
    SELECT coalesce(a.event_id, b.event_id) AS event_id, b, a
    FROM before AS b FULL JOIN after AS a ON a.event_id = b.event_id
    WHERE a.event_id IS NULL OR b.event_id IS NULL
       OR (a.slug, a.title, a.description, a.displayed_date, a.date, a.date_end, a.date_type,
           a.is_estimated, a.categories, a.coins, a.impact, a.impact_summary, a.source_url,
           a.snapshot_url, a.created_at)
       IS DISTINCT FROM
          (b.slug, b.title, b.description, b.displayed_date, b.date, b.date_end, b.date_type,
           b.is_estimated, b.categories, b.coins, b.impact, b.impact_summary, b.source_url,
           b.snapshot_url, b.created_at)""",
)


def load(export: Path, folder: Path) -> dict[str, float]:
    """Write everything from one export; return the times."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    named = {
        "file": export,
        "changes": folder / "changes.parquet",
        "checkpoint": folder / "checkpoint.parquet",
        "months": folder / "months",
    }
    watch = Stopwatch()
    with _connected() as connection:
        connection.execute(f"ATTACH '{folder / 'warehouse.duckdb'}' AS out")
        for statement in _LOAD:
            values = {name: str(path) for name, path in named.items() if f"${name}" in statement}
            connection.execute(statement, values)
    for path in sorted(folder.rglob("*")):
        sync(path)
    return watch.figures()


def diff(before: Path, after: Path) -> dict[str, float]:
    """Read two exports and join them in full; return the times."""
    watch = Stopwatch()
    with _connected() as connection:
        for statement in _DIFF:
            named = {"before": before, "file": after}
            values = {name: str(path) for name, path in named.items() if f"${name}" in statement}
            connection.execute(statement, values)
    return watch.figures()


def diffs(folder: Path) -> dict[str, float]:
    """Read the exports of a folder in turn, each joined with the previous one."""
    watch = Stopwatch()
    with _connected() as connection:
        before: Path | None = None
        for path in sorted(folder.glob("*.csv")):
            statements = _DIFF if before is None else _NEXT
            for statement in statements:
                named = {"before": before or path, "file": path}
                values = {n: str(value) for n, value in named.items() if f"${n}" in statement}
                connection.execute(statement, values)
            before = path
    return watch.figures()


def copy(published: Path, target: Path) -> dict[str, float]:
    """Copy a published file, write one row to it and sync it; return the times."""
    watch = Stopwatch()
    shutil.copyfile(published, target)
    with _connected() as connection:
        connection.execute(f"ATTACH '{target}' AS out")
        connection.execute("CREATE TABLE out.one AS SELECT 1 AS one")
        connection.execute("DETACH out")
    sync(target)
    return watch.figures()


_NEXT: Final = (
    "DROP TABLE changes",
    "DROP TABLE before",
    "ALTER TABLE after RENAME TO before",
    *_DIFF[1:],
)


def _connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("load", "diff", "diffs", "copy"))
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    match arguments.what:
        case "load":
            times = load(*arguments.paths)
        case "diff":
            times = diff(*arguments.paths)
        case "copy":
            times = copy(*arguments.paths)
        case _:
            times = diffs(*arguments.paths)
    print_figures(**times)


if __name__ == "__main__":
    main()
