"""Compares the Iceberg tables with the published file, row by row."""

from pathlib import Path

import duckdb
import pyarrow as pa

from almanac.lake import Lake, open_lake
from warehouse.iceberg.lake_tables import EVENT_CHANGES, EVENT_STEPS, EVENT_VERSIONS, LAKE_TABLES
from warehouse.iceberg.step_parts import find_step_parts

DERIVED = ("known_to", "first_seen_at")


def count_differences(home: Path, lake: Lake | None = None) -> dict[str, tuple[int, int]]:
    """Return for each table the rows that only the warehouse has, and only the Iceberg table."""
    lake = open_lake(home) if lake is None else lake
    publication, found = lake.publication(), dict[str, tuple[int, int]]()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{home / 'warehouse.duckdb'}' AS published (READ_ONLY)")
        for table in LAKE_TABLES:
            connection.register("there", lake.read(table.name, publication=publication))
            names = [column.name for column in table.columns]
            expected = f"FROM published.{table.name}"
            if table is EVENT_STEPS:
                connection.execute("USE published")
                steps = [part.list(connection) for part in find_step_parts(connection)]
                connection.execute("USE memory")
                connection.register("steps", pa.concat_tables(steps))
                expected = "FROM steps"
            if table is EVENT_VERSIONS:
                names += DERIVED
            if table is EVENT_CHANGES:
                files = home / "lake/event_changes/*/changes.parquet"
                expected = f"FROM read_parquet('{files}', hive_partitioning = false)"
            elif "extra" in names:
                expected = f"FROM (SELECT * REPLACE (extra::VARCHAR AS extra) {expected})"
            listed = ", ".join(names)
            sides = (f"SELECT {listed} {expected}", f"SELECT {listed} FROM there")
            counts = [
                connection.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchall()[0][0]
                for a, b in (sides, sides[::-1])
            ]
            found[table.name] = (counts[0], counts[1])
    return found


def equal() -> dict[str, tuple[int, int]]:
    return {table.name: (0, 0) for table in LAKE_TABLES}
