"""Lands and merges what a home's inbox holds, again and again until its input ends. A child.

    python -m bench.push.merging HOME

Each round has something to merge: a delivery is landed first. Prints a line after the first merge.
"""

import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Thread

from bench.children import print_figures
from bench.push.receiver import SOURCE
from bench.warehouse.homes import deliver
from resources.inbox.deliveries import land_deliveries
from warehouse.history.merge import merge
from warehouse.home import Home


def main() -> None:
    home = Home(Path(sys.argv[1]))
    ended = Thread(target=sys.stdin.read, daemon=True)
    ended.start()
    for number in count(1):
        deliver(home, number, at=datetime.now(UTC), source=SOURCE)
        land_deliveries(home, lambda: datetime.now(UTC))
        merge(home)
        print_figures(merges=number)
        sys.stdout.flush()
        if not ended.is_alive():
            break


if __name__ == "__main__":
    main()
