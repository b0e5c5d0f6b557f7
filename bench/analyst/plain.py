"""The same questions in pandas, as people write them. Run as a child: it prints its seconds.

The versions are in memory before the clock starts, as in a notebook; `read_…` says what that
took. Each way gives the same answer as the package, which the benchmark checks.
"""

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from bench.children import Stopwatch, print_figures

DAY = pd.Timedelta(days=1)


def events_by_group(versions: Any, at: datetime) -> Any:
    """The last version of each event that was known by then."""
    return versions[versions.known_from <= at].sort_values("version").groupby("event_id").last()


def events_by_mask(versions: Any, at: datetime) -> Any:
    """The versions whose interval holds the instant, which a log alone does not have."""
    return versions[(versions.known_from <= at) & ~(versions.known_to <= at)]


def usable(versions: Any) -> Any:
    """Return the scheduled versions with an exact date, one row for each coin."""
    kept = versions[
        (versions.status == "scheduled") & versions.date_precision.isin(["instant", "day"])
    ]
    kept = kept[["event_id", "coins", "date", "date_precision", "known_from", "known_to"]]
    kept = kept.explode("coins").rename(columns={"coins": "coin"})
    # An event of a day may begin until its end.
    later = (kept.date_precision == "day").map({True: DAY, False: 0 * DAY})
    return kept.assign(begun=kept.date + later)


def loop(versions: Any, frame: Any, horizon: pd.Timedelta) -> Any:
    """Row by row: filter the versions of the coin, take the earliest date."""
    of_coin = dict(list(usable(versions).groupby("coin")))
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
    known, frame = usable(versions), frame.sort_values("ts")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["by_group", "by_mask", "loop", "merge_asof"])
    parser.add_argument("versions", type=Path)
    parser.add_argument("--at", type=datetime.fromisoformat)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--horizon", type=pd.Timedelta)
    parser.add_argument("--only", type=int, help="the first rows only; the seconds are scaled up")
    given = parser.parse_args()
    watch = Stopwatch()
    versions = pd.read_parquet(given.versions)
    read = {f"read_{name}": value for name, value in watch.figures().items()}
    if given.rows is None:
        ask = events_by_group if given.what == "by_group" else events_by_mask
        watch = Stopwatch()
        rows = len(ask(versions, given.at))
        print_figures(**watch.figures(), **read, rows=rows)
        return
    frame = pd.read_parquet(given.rows)
    some = frame.head(given.only or len(frame))
    join = loop if given.what == "loop" else merge_asof_by_pull
    watch = Stopwatch()
    found = join(versions, some, given.horizon)
    share = len(some) / len(frame)
    figures = {name: value / share for name, value in watch.figures().items()}
    found.sort_index().to_parquet(given.into)
    print_figures(**figures, **read, measured_rows=len(some))


if __name__ == "__main__":
    main()
