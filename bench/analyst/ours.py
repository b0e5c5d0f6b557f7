"""The package doing the measured work. Run as a child: it prints its seconds."""

import argparse
from datetime import datetime
from pathlib import Path

import pandas as pd

from almanac import open as open_warehouse  # Imports what it needs, before the clock starts.
from bench.children import Stopwatch, print_figures


def events(home: Path, at: datetime) -> None:
    """Open the warehouse, and return all events as they were known at an instant."""
    watch = Stopwatch()
    with open_warehouse(home) as db:
        rows = len(db.events(as_of=at, status="all").df())
    print_figures(**watch.figures(), rows=rows)


def attach(home: Path, rows: Path, into: Path, horizon: str) -> None:
    """Open the warehouse, and join the next event to each row."""
    frame = pd.read_parquet(rows)
    watch = Stopwatch()
    with open_warehouse(home) as db:
        found = db.attach_known(frame, horizon=horizon)
    figures = watch.figures()
    found[["next_event_id", "events_ahead"]].to_parquet(into)
    with_event = found.next_event_id.notna().mean()
    print_figures(**figures, rows=len(found), with_event=with_event)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["events", "attach"])
    parser.add_argument("home", type=Path)
    parser.add_argument("--at", type=datetime.fromisoformat)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--horizon")
    given = parser.parse_args()
    if given.what == "events":
        events(given.home, given.at)
    else:
        attach(given.home, given.rows, given.into, given.horizon)


if __name__ == "__main__":
    main()
