"""Almanac on the plan Elite: lands the export and the cancellations (none), and merges.

Elite needs the cancellations to prove a withdrawal: two exports without the event, and a pull of
the cancellations in between.
"""

import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from bench.homes import land_cancellations, land_export
from bench.peers.child import INCOMING, serve
from warehouse.history.merge import merge
from warehouse.home import Home


def main() -> None:
    home = Home(Path(sys.argv[1]))

    def take_day(at: datetime) -> dict[str, float]:
        began = time.perf_counter()
        land_export(home, INCOMING, at)
        land_cancellations(home, at + timedelta(minutes=1))
        landed = time.perf_counter() - began
        merge(home)
        return {"land": landed}

    serve(take_day, duckdb=duckdb.__version__)


if __name__ == "__main__":
    main()
