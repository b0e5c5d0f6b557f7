"""The as-of joins of docs/scale.md, as they are written there, and their differences."""

import re
from functools import cache
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from tests.test_cli import ROOT

_BLOCK = re.compile(r"```(?:sql|python)\n(?:--|#) As-of join: ([\w ]+)\n(.*?)```", re.DOTALL)


@cache
def read_queries() -> dict[str, str]:
    """Return the statements of the page by the first line of their blocks."""
    return dict(_BLOCK.findall((ROOT / "docs" / "scale.md").read_text("utf-8")))


def join_in_duckdb(bars: pa.Table, steps: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.register("bars", bars)
        connection.register("event_steps", steps)
        return connection.sql(read_queries()["DuckDB"]).to_arrow_table()


def join_in_pandas(bars: pa.Table, steps: pa.Table) -> pa.Table:
    frames: dict[str, Any] = {"pd": pd, "bars": bars.to_pandas(), "steps": steps.to_pandas()}
    exec(read_queries()["pandas"], frames)
    return pa.Table.from_pandas(frames["joined"], preserve_index=False)


def count_differences(expected: pa.Table, found: pa.Table) -> tuple[int, int]:
    """Return the rows that only one side has, in all columns of `expected`."""
    assert set(expected.column_names) <= set(found.column_names)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("expected", expected)
        connection.register("found", found)
        rows = connection.execute("SELECT column_name, column_type FROM (DESCRIBE expected)")
        listed = ", ".join(_comparable(name, kind) for name, kind in rows.fetchall())
        sides = [f"SELECT {listed} FROM {side}" for side in ("expected", "found")]
        missing, added = (
            connection.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchall()[0][0]
            for a, b in (sides, sides[::-1])
        )
        return int(missing), int(added)


def _comparable(name: str, kind: str) -> str:
    if kind in ("DOUBLE", "BIGINT"):
        # pandas has NaN for NULL, and other engines other widths of numbers.
        return f"nullif({name}::DOUBLE, 'nan') AS {name}"
    return f"{name}::{kind} AS {name}"
