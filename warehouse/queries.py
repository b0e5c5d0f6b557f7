"""The activity of a catalog, as a published file shows it. Timestamps are UTC."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb

from almanac.core.errors import WarehouseError
from almanac.core.statements import Statements
from almanac.reading.attached_file import connected
from catalog.contract import constants

_SQL = Statements(__package__)

_PAST: Final = timedelta(days=31)
_LISTED: Final = timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)


@dataclass(frozen=True, slots=True)
class Activity:
    """The known dates of a catalog: `spans` has first date, last date and the number of events."""

    spans: tuple[tuple[date, date | None, int], ...] = ()
    missing: tuple[str, ...] = ()
    coins: int = 0
    cancellations: int = 0


def read_activity(warehouse: Path, now: datetime) -> Activity:
    """Return the activity in a warehouse; none if there is no warehouse yet."""
    if not warehouse.exists():
        return Activity()
    try:
        with connected(warehouse) as connection:
            counts = connection.execute(_SQL["count_feeds"], {"since": now - _LISTED})
            ((coins, cancellations),) = counts.fetchall()
            spans = connection.execute(_SQL["count_spans"], {"since": (now - _PAST).date()})
            found = spans.fetchall()
            missing = connection.execute(_SQL["list_missing"], {"now": now}).fetchall()
    except duckdb.Error as error:
        raise WarehouseError(
            f"{warehouse} can't be read: {str(error).splitlines()[0]} If it is damaged, `almanac "
            "rebuild` makes it again."
        ) from error
    return Activity(
        spans=tuple(found),
        missing=tuple(event_id for (event_id,) in missing),
        coins=coins,
        cancellations=cancellations,
    )
