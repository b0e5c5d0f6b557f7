"""The rows of a back-test, and the sides that join the next known event to each.

In pandas it is done as people write it. Run as a child, a side prints its seconds. The versions are
in memory before the clock of pandas starts, as in a notebook.
"""

import argparse
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import almanac
from bench.children import Stopwatch, print_figures
from bench.homes import LAST_DAY
from warehouse.home import Home

COINS: Final = 500
"""The coins of the rows. A hundred of them have the most events."""
HORIZON: Final = "7D"
_GROUP_ROWS: Final = 1_000_000
_DAY: Final = pd.Timedelta(days=1)


def write_versions(folder: Path) -> None:
    """Write all versions of the home in a folder to a Parquet file, for pandas."""
    with duckdb.connect(Home(folder / "home").warehouse, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        versions = connection.table("event_versions")
        versions.write_parquet(str(folder / "versions.parquet"), compression="zstd")


def write_rows(file: Path, *, rows: int, days: int) -> None:
    """Write rows of a back-test: random minutes of the last days, and random coins."""
    random = np.random.default_rng(14)
    first = np.datetime64(LAST_DAY, "s") - np.timedelta64(days - 1, "D")
    names = pa.array([f"coin-{number}" for number in range(COINS)])

    def make(count: int) -> Any:
        # Between two pulls, which are at full minutes.
        seconds = random.integers(0, days * 24 * 60, count) * 60 + 30
        coins = pa.array(random.integers(0, COINS, count).astype(np.int32))
        return pa.table(
            {
                "ts": pa.array((first + seconds).astype("datetime64[us]")).cast(
                    pa.timestamp("us", "UTC")
                ),
                "coin": pa.DictionaryArray.from_arrays(coins, names),
                "close": random.random(count),
            }
        )

    with pq.ParquetWriter(file, make(0).schema) as writer:
        for begin in range(0, rows, _GROUP_ROWS):
            writer.write_table(make(min(_GROUP_ROWS, rows - begin)), _GROUP_ROWS)


def attach(folder: Path, into: Path) -> None:
    """Open the warehouse, and join the next event to each row of a frame."""
    frame = pd.read_parquet(folder / "rows.parquet")
    watch = Stopwatch()
    with almanac.open(folder / "home") as db:
        found = db.attach_known(frame, horizon=HORIZON)
    figures = watch.figures()
    found[["next_event_id", "events_ahead"]].to_parquet(into)
    print_figures(**figures, with_event=found.next_event_id.notna().mean())


def stream(folder: Path, into: Path) -> None:
    """Open the warehouse, and join the next event to each row of a file, into a file."""
    watch = Stopwatch()
    with almanac.open(folder / "home") as db:
        rows = db.attach_known(folder / "rows.parquet", to=into, horizon=HORIZON)
    figures = watch.figures()
    print_figures(**figures, rows_per_second=round(rows / figures["seconds"]))


def select_usable(versions: Any) -> Any:
    """Return the scheduled versions with an exact date, one row for each coin."""
    kept = versions[
        (versions.status == "scheduled") & versions.date_precision.isin(["instant", "day"])
    ]
    kept = kept[["event_id", "coins", "date", "date_precision", "known_from", "known_to"]]
    kept = kept.explode("coins").rename(columns={"coins": "coin"})
    # An event of a day may begin until its end.
    later = (kept.date_precision == "day").map({True: _DAY, False: 0 * _DAY})
    return kept.assign(begun=kept.date + later)


def loop(versions: Any, frame: Any, horizon: pd.Timedelta) -> Any:
    """Row by row: filter the versions of the coin, take the earliest date."""
    of_coin = dict(list(select_usable(versions).groupby("coin")))
    found = []
    for row in frame.itertuples():
        known = of_coin.get(row.coin)
        if known is None:
            found.append((None, 0))
            continue
        ahead = known[
            (known.known_from <= row.ts)
            & ~(known.known_to <= row.ts)
            & (known.begun > row.ts)
            & (known.date <= row.ts + horizon)
        ]
        first = ahead.sort_values(["date", "event_id"]).event_id
        found.append((first.iloc[0] if len(first) else None, len(first)))
    return pd.DataFrame(found, columns=["next_event_id", "events_ahead"], index=frame.index)


def merge_asof_by_pull(versions: Any, frame: Any, horizon: pd.Timedelta) -> Any:
    """For each span between two pulls, what was known then, joined forward by date.

    It has no count of the events ahead, which merge_asof can't give.
    """
    known, frame = select_usable(versions), frame.sort_values("ts")
    pulls = known.known_from.dt.ceil("20s").drop_duplicates().sort_values()
    spans = pulls.searchsorted(frame.ts, side="right")
    parts = []
    for number, rows in frame.groupby(spans):
        if number == 0:
            continue
        at = pulls.iloc[number - 1]
        then = known[(known.known_from <= at) & ~(known.known_to <= at)]
        then = then.sort_values(["begun", "event_id"]).drop_duplicates(["coin", "begun"])
        joined = pd.merge_asof(
            rows,
            then[["begun", "date", "coin", "event_id"]],
            left_on="ts",
            right_on="begun",
            by="coin",
            direction="forward",
            allow_exact_matches=False,
        )
        joined.index = rows.index
        parts.append(joined.event_id.where(joined.date <= joined.ts + horizon))
    return pd.concat(parts).to_frame("next_event_id").reindex(frame.index)


def join_in_pandas(what: str, folder: Path, into: Path, only: int | None) -> None:
    """Join the next event to the rows, or to the first of them; seconds are scaled to all rows."""
    versions = pd.read_parquet(folder / "versions.parquet")
    frame = pd.read_parquet(folder / "rows.parquet").astype({"coin": "str"})
    some = frame.head(only or len(frame))
    watch = Stopwatch()
    join = loop if what == "loop" else merge_asof_by_pull
    found = join(versions, some, pd.Timedelta(HORIZON))
    share = len(some) / len(frame)
    figures = {name: value / share for name, value in watch.figures().items()}
    found.sort_index().to_parquet(into)
    print_figures(**figures, measured_rows=len(some))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["attach", "stream", "loop", "merge_asof"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("into", type=Path)
    parser.add_argument("--only", type=int, help="the first rows only; the seconds are scaled up")
    given = parser.parse_args()
    if given.what == "attach":
        attach(given.folder, given.into)
    elif given.what == "stream":
        stream(given.folder, given.into)
    else:
        join_in_pandas(given.what, given.folder, given.into, given.only)


if __name__ == "__main__":
    main()
