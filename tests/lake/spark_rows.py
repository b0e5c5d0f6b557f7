"""Compares rows that came through a cluster with those of one process."""

import duckdb
import pyarrow as pa


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", found)
        connection.register("expected", expected)
        for left, right in (("found", "expected"), ("expected", "found")):
            rows = connection.execute(f"FROM {left} EXCEPT ALL FROM {right}").fetchmany(3)
            assert rows == []
