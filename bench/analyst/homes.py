"""A published warehouse for the questions, its versions as Parquet, and the rows of a back-test.

Run as a child, so that the memory of making them is not that of the processes that are measured.
Belongs here: making them. Does not: timing anything.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from bench.children import print_figures
from bench.warehouse.homes import LAST_DAY, deliver, make_home
from warehouse.history.merge import merge
from warehouse.home import Home

COINS_ASKED = 500
"""Of them a hundred have the most events."""


def publish_home(root: Path, *, events: int, versions: int, coins: int, days: int) -> Home:
    """Write and publish a home of that size; one delivery makes it publish."""
    home = Home(root)
    make_home(home, events=events, versions=versions, coins=coins, days=days)
    deliver(home, 0)
    merge(home)
    return home


def write_versions(home: Home, into: Path) -> int:
    """Write all versions to a Parquet file, for pandas, and return how many they are."""
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.table("event_versions").write_parquet(str(into), compression="zstd")
        ((count,),) = connection.execute("SELECT count(*) FROM event_versions").fetchall()
    return int(count)


def write_rows(into: Path, *, rows: int, days: int) -> None:
    """Write rows of a back-test: random minutes of the last days, and random coins."""
    random = np.random.default_rng(14)
    first = pd.Timestamp(LAST_DAY, tz="UTC") - pd.Timedelta(days=days - 1)
    minutes = random.integers(0, days * 24 * 60, rows)
    coins: Any = np.array([f"coin-{number}" for number in range(COINS_ASKED)], object)
    frame = pd.DataFrame(
        {
            # Between two pulls, which are at full minutes.
            "ts": first + pd.to_timedelta(minutes * 60 + 30, unit="s"),
            "coin": coins[random.integers(0, COINS_ASKED, rows)],
            "close": random.random(rows),
        }
    )
    frame.to_parquet(into)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name in ("events", "versions", "coins", "days", "rows"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    began = time.perf_counter()
    home = publish_home(
        given.folder / "home",
        events=given.events,
        versions=given.versions,
        coins=given.coins,
        days=given.days,
    )
    versions = write_versions(home, given.folder / "versions.parquet")
    write_rows(given.folder / "rows.parquet", rows=given.rows, days=given.days - 1)
    print_figures(seconds=time.perf_counter() - began, versions=versions)


if __name__ == "__main__":
    main()
