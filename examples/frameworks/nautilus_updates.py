"""nautilus_trader: what became known of events, as custom data for a back-test.

Nautilus delivers data in the order of `ts_init`, the timestamp at which a system receives it: here
`known_from`. The date of the event lies ahead, so it is a field of the update.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

import almanac

FIELDS = {
    "event_id": str,
    "version": int,
    "title": str,
    "coins": str,
    "status": str,
    "date_ns": int,
    "latest_ns": int,
    "impact": float,
}
"""The fields of an update; None is unknown. `date_ns` is None unless the date is exact."""


def records(home: str | Path, start: datetime, coins: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the events known at the start, then each change, oldest first. `coins` are slugs.

    An update replaces the one before of the same event; check its status. An event is included
    from the first version on that is linked to one of the coins.
    """
    with almanac.open(home) as db, db.replay(start, coins=sorted(coins)) as changes:
        for event in list(changes.catalog.values()):
            if coins.intersection(event["coins"] or ()):
                yield _record(event, changes.since)
        for change in changes:
            yield _record(change.event, change.known_from)


def _record(event: Mapping[str, Any], known_from: datetime) -> dict[str, Any]:
    # The deadline of an estimated event is never its date.
    is_exact = event["date_precision"] in ("instant", "day")
    return {
        **{name: event[name] for name in FIELDS if name in event},
        "coins": ";".join(event["coins"] or ()),
        "date_ns": _nanoseconds(event["date"]) if is_exact else None,
        "latest_ns": _nanoseconds(event["latest"]),
        "ts_event": _nanoseconds(known_from),
        "ts_init": _nanoseconds(known_from),
    }


def _nanoseconds(moment: datetime | None) -> int | None:
    try:
        return None if moment is None else pd.Timestamp(moment).as_unit("ns").value
    except pd.errors.OutOfBoundsDatetime:
        return None


def make_update_class() -> Any:
    """Return the class `EventUpdate`: custom data of nautilus with the fields of a record."""
    from nautilus_trader.core.data import Data
    from nautilus_trader.model.custom import customdataclass

    body = {"__module__": __name__, "__annotations__": FIELDS, **dict.fromkeys(FIELDS)}
    return customdataclass(type("EventUpdate", (Data,), body))
