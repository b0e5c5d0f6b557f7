"""The current events in the lake, by event month, for engines that read Parquet.

    lake/events/event_month=YYYY-MM/events.parquet

Their columns are those of `events_as_of`. A month is rewritten when an event in it differs from
what was published. While that goes on, a marker names the months: after a crash the next
publication rewrites them too, whatever it compares.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from warehouse.staged import Staged
from warehouse.statements import statement
from warehouse.storage import Storage

FOLDER = "events"
_MARKER = f"{FOLDER}/_rewriting.json"
_MONTH = "event_month="
SORTED_ABOVE: Final = 8
"""Months; from so many on, sorting the events once is cheaper than a look at all for each."""
_SIDE_BY_SIDE: Final = 4
"""Months written at a time: while one waits for the disk, others are compressed."""


def changed_months(staged: Staged) -> set[str]:
    """Return the months of events that a delta found to differ."""
    return {month for (month,) in staged.run(statement("publish_changed_months"))}


def write_events(staged: Staged, lake: Storage, months: set[str] | None) -> int:
    """Rewrite some months, or all, and return how many; one that is empty now is removed.

    What is staged must be committed.
    """
    if months is not None:
        months = months | unsettled_months(lake)
        if not months:
            return 0
    filled = {month for (month,) in staged.run(statement("publish_months"))}
    touched = months if months is not None else filled | _standing(lake)
    lake.put(_MARKER, msgspec.json.encode(sorted(touched)))
    for month in touched - filled:
        lake.remove_folder(f"{FOLDER}/{_MONTH}{month}")
    _write_months(staged, lake, sorted(touched & filled))
    return len(touched)


def settle(lake: Storage) -> None:
    """Forget which months were rewritten, once the warehouse that goes with them is in place."""
    lake.remove(_MARKER)


def unsettled_months(lake: Storage) -> set[str]:
    """Return the months that may not be as published, since a publication did not end."""
    if not lake.exists(_MARKER):
        return set()
    return set(msgspec.json.decode(lake.read(_MARKER), type=list[str]))


def _write_months(staged: Staged, lake: Storage, months: list[str]) -> None:
    by_date = "_by_date" if len(months) > SORTED_ABOVE else ""
    staged.run(statement(f"publish_lake_events{by_date}"))

    def write(month: str) -> None:
        with lake.writing(f"{FOLDER}/{_MONTH}{month}/events.parquet") as file:
            values = {"month": month, "file": str(file)}
            staged.run_beside(statement("publish_events_of_month"), values)

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(write, months))  # Raises what went wrong in a thread.


def _standing(lake: Storage) -> set[str]:
    return {name.removeprefix(_MONTH) for name in lake.folders(FOLDER) if name.startswith(_MONTH)}
