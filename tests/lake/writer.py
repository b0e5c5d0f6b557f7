"""A machine that writes, as a process: it merges again and again until it is told to end.

`python -m tests.lake.writer FOLDER NAME LEASE_S` has its home in FOLDER/NAME and reads the number
of batches that have landed from FOLDER/landed. Under the lock it lands those that its home lacks,
as a machine does that follows a bucket. Each batch is a pure function of its number.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.warehouse.landed_days import FIRST
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.errors import WarehouseError
from warehouse.history.merge import MergeReport, merge
from warehouse.home import Home
from warehouse.iceberg_place import IcebergPlace
from warehouse.landing.batches import Pull, Scope
from warehouse.shared.database import SharedDatabase

ADDRESS = "address"
LANDED = "landed"
END = "end"
EVENTS = 12


def open_home(folder: Path, name: str, lease_s: float = 2.0) -> Home:
    """Return the home of a machine; all of them have one catalog and one folder of tables."""
    address = (folder / ADDRESS).read_text()
    return Home(
        folder / name,
        iceberg=IcebergPlace(address, f"file://{folder / 'iceberg'}"),
        database=SharedDatabase(address),
        lease_s=lease_s,
        wait_s=900.0,
    )


def land_number(home: Home, number: int) -> None:
    """Land a list of events; some batches are observed earlier than others with a lower number."""
    at = FIRST + timedelta(hours=7 * number - (40 if number % 5 == 3 else 0))
    pull = Pull(
        feed="events",
        scope=Scope(),
        plan="enterprise",
        source="s",
        observed_at=at,
        content_at=at - timedelta(minutes=1),
        landed_at=at,
        requests=1,
    )
    source = random.Random(number)
    events: list[dict[str, Any]] = [
        {**json_event(), "id": f"event-{event}", "title": f"Title {source.randrange(3)}"}
        for event in range(EVENTS)
        if source.random() < 0.9
    ]
    home.landing.land(pull, [(json.dumps({"data": events, "meta": {}}).encode(), None)])


def merge_landed(home: Home, landed: int, step: Callable[[str], None]) -> MergeReport:
    """Merge the batches below a number, landing those that the home lacks under the lock."""

    def landing(name: str) -> None:
        if name == "merge:locked":
            for number in range(len(home.landing.batch_ids()), landed):
                land_number(home, number)
        step(name)

    return merge(home, step=landing)


def stop_before_commits(flag: Path) -> None:
    """Stop this process before a commit of the catalog if a file is there, which it removes."""
    from pyiceberg.catalog.sql import SqlCatalog

    commit = SqlCatalog.commit_table

    def stopping(*args: Any, **given: Any) -> Any:
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return commit(*args, **given)

    SqlCatalog.commit_table = stopping


def main() -> None:
    folder, name, lease_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    stop_before_commits(folder / f"{name}.stop")
    home, source, merged = open_home(folder, name, lease_s), random.Random(name), 0

    def step(_: str) -> None:
        time.sleep(source.random() * 0.02)

    while not (folder / END).exists():
        landed = int((folder / LANDED).read_text())
        if landed == merged:
            time.sleep(0.02)
            continue
        try:
            report = merge_landed(home, landed, step)
            refused = "" if report.iceberg is None else report.iceberg.why_failed
            merged = merged if refused else landed
        except WarehouseError as error:
            refused = f"{type(error).__name__}: {error}"
        sys.stdout.write(f"{refused or 'merged'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
