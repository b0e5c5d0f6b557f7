"""Keeps history in one DuckDB file: copy the published file, fold the export, rename.

It has no rules beyond the comparison of rows: the cost of the storage alone. With `--also` it also
writes what Almanac keeps beside the file: the bytes of the export, the current events, and the new
versions by day, as Parquet.
"""

import argparse
import os
import shutil
from datetime import datetime
from pathlib import Path

import duckdb

from bench.peers.child import COMPARED, INCOMING, TYPED, serve

_ROWS = f"""
SELECT * REPLACE (string_split(categories, ';') AS categories, string_split(coins, ';') AS coins)
FROM ({TYPED})
"""
_CREATE = f"""
CREATE TABLE event_versions AS
SELECT *, now() AS known_from, now() AS known_to FROM ({_ROWS}) LIMIT 0;
CREATE TABLE event_seen (event_id VARCHAR, digest UBIGINT, last_seen_at TIMESTAMPTZ);
"""
_FOLD = f"""
CREATE TEMP TABLE incoming AS SELECT *, hash({", ".join(COMPARED)}) AS digest FROM ({_ROWS});
BEGIN;
CREATE TEMP TABLE begun AS
FROM incoming AS i ANTI JOIN event_seen AS s USING (event_id, digest);
CREATE TEMP TABLE ended AS
SELECT s.event_id FROM event_seen AS s ANTI JOIN incoming AS i USING (event_id, digest);
UPDATE event_versions SET known_to = getvariable('known_at')
WHERE known_to IS NULL AND event_id IN (FROM ended);
INSERT INTO event_versions SELECT * EXCLUDE (digest), getvariable('known_at'), NULL FROM begun;
DELETE FROM event_seen WHERE event_id IN (FROM ended);
UPDATE event_seen SET last_seen_at = getvariable('known_at');
INSERT INTO event_seen SELECT event_id, digest, getvariable('known_at') FROM begun;
COMMIT;
"""
_PARQUET = """
COPY (FROM event_versions WHERE known_to IS NULL)
TO '{folder}/events.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);
COPY begun TO '{folder}/{day}.parquet' (FORMAT parquet, COMPRESSION zstd);
"""


def fold(folder: Path, at: datetime, *, also: bool) -> None:
    """Publish the history with the export of a time."""
    published, work = folder / "warehouse.duckdb", folder / ".next.duckdb"
    if published.exists():
        shutil.copyfile(published, work)
    with duckdb.connect(work) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET VARIABLE known_at = $at::TIMESTAMPTZ", {"at": at})
        if not published.exists():
            connection.execute(_CREATE)
        connection.execute(_FOLD)
        if also:
            _keep_bytes(folder / f"{at:%Y-%m-%d}.csv.zst")
            connection.execute(_PARQUET.format(folder=folder, day=f"{at:%Y-%m-%d}"))
        connection.execute("CHECKPOINT")
    with work.open("rb") as file:
        os.fsync(file.fileno())
    work.replace(published)


def _keep_bytes(target: Path) -> None:
    import pyarrow as pa

    with (
        INCOMING.open("rb") as source,
        pa.CompressedOutputStream(str(target), "zstd") as compressed,
    ):
        shutil.copyfileobj(source, compressed, 1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--also", action="store_true")
    given = parser.parse_args()
    serve(lambda at: fold(given.folder, at, also=given.also), duckdb=duckdb.__version__)


if __name__ == "__main__":
    main()
