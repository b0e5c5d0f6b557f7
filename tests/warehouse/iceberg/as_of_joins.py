"""The as-of joins of docs/lake.md, as they are written there, and their differences."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"
_BLOCK = re.compile(r"```(?:sql|python)\n(?:--|#) ([\w ]+)\n(.*?)```", re.DOTALL)


@cache
def read_queries() -> dict[str, str]:
    """Return the statements of the page by the first line of their blocks."""
    return dict(_BLOCK.findall(PAGE.read_text("utf-8")))


def join_in_duckdb(bars: pa.Table, steps: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.register("bars", bars)
        connection.register("event_steps", steps)
        return connection.sql(read_queries()["DuckDB"]).to_arrow_table()


def join_in_polars(bars: pa.Table, steps: pa.Table) -> pa.Table:
    frames: dict[str, Any] = {"pl": pl, "bars": pl.from_arrow(bars), "steps": pl.from_arrow(steps)}
    exec(read_queries()["Polars"], frames)
    found: pa.Table = frames["joined"].to_arrow()
    return found


def join_in_pandas(bars: pa.Table, steps: pa.Table) -> pa.Table:
    frames: dict[str, Any] = {"pd": pd, "bars": bars.to_pandas(), "steps": steps.to_pandas()}
    exec(read_queries()["pandas"], frames)
    return pa.Table.from_pandas(frames["joined"], preserve_index=False)


def count_differences(
    expected: pa.Table, found: pa.Table, *, whole_us: bool = False
) -> tuple[int, int]:
    """Return the rows that only one side has, in all columns of `expected`.

    `whole_us` compares numbers of days as whole microseconds: Polars multiplies by a reciprocal.
    """
    shared = [field for field in expected.schema if field.name in found.column_names]
    assert len(shared) == expected.num_columns, found.column_names
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("expected", expected)
        connection.register("found", found)
        kinds = dict(
            connection.execute(
                "SELECT column_name, column_type FROM (DESCRIBE expected)"
            ).fetchall()
        )
        listed = ", ".join(
            _comparable(name, kinds[name], whole_us=whole_us) for name in expected.column_names
        )
        sides = [f"SELECT {listed} FROM {side}" for side in ("expected", "found")]
        missing, added = (
            connection.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchall()[0][0]
            for a, b in (sides, sides[::-1])
        )
        return int(missing), int(added)


def _comparable(name: str, kind: str, *, whole_us: bool) -> str:
    if whole_us and name in ("next_event_age_days", "days_until"):
        return f"round({name} * 86400000000)::BIGINT AS {name}"
    if kind in ("DOUBLE", "BIGINT"):
        # pandas has NaN for NULL, and other engines other widths of numbers.
        return f"nullif({name}::DOUBLE, 'nan') AS {name}"
    return f"{name}::{kind} AS {name}"
