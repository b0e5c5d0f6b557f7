"""nautilus_trader: what became known of events, as custom data that a back-test replays.

    engine.add_data(updates(db, coins="slug:bitcoin", start=start), client_id=ClientId("ALMANAC"))
    # in a strategy: self.subscribe_data(DataType(EventUpdate), client_id=ClientId("ALMANAC"))

Nautilus delivers data in the order of `ts_init`, the timestamp at which a system receives it: here
`known_from`. `ts_event` is when it happened at its source, which is never later: the timestamp at
which the content was true. The date of the event itself lies ahead, so it is a field of the update.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from almanac.adapters.bars import framework
from almanac.coins import slugs_of
from almanac.events import Coins, known_at
from almanac.instants import Instant
from almanac.reading.named_sql import NamedStatements

if TYPE_CHECKING:
    from almanac.database import Database

CLIENT: Final = "ALMANAC"
"""The id of the client, as which the engine adds the updates and a strategy subscribes to them."""
_FIELDS: Final[dict[str, type]] = {
    "event_id": str,
    "version": int,
    "title": str,
    "coins": str,
    "categories": str,
    "status": str,
    "is_missing": bool,
    "date_precision": str,
    "date_ns": int,
    "earliest_ns": int,
    "latest_ns": int,
    "impact": float,
    "impact_band": str,
}
"""The fields of an update; None is unknown."""
_NS: Final = {
    "date_us": "date_ns",
    "earliest_us": "earliest_ns",
    "latest_us": "latest_ns",
    "happened_us": "ts_event",
    "known_us": "ts_init",
}
_NS_END: Final = 2**63
"""The nanoseconds of a 64-bit number end in the year 2262; a later date is unknown."""
_SQL = NamedStatements("almanac.adapters")


def updates(db: "Database", coins: Coins | None = None, start: Instant | None = None) -> list[Any]:
    """Return a `CustomData` of `EventUpdate` for each change of what was known, oldest first.

    Args:
        coins: slugs, tickers or names; events from the timestamp on at which they were linked to
            any of them. None is all events.
        start: of the back-test. The state at `start` comes first, dated `start`, since an engine
            that starts at a timestamp skips older data; of events that were over, nothing.

    Raises:
        InvalidArgument: an argument is wrong, or nautilus_trader is not installed.
        AmbiguousCoin, UnknownName: as `Database.resolve`.
    """
    data = framework("nautilus_trader.model.data", "nautilus_trader")
    kind = data.DataType(update_class())
    return [data.CustomData(kind, update_class()(**record)) for record in records(db, coins, start)]


def records(
    db: "Database", coins: Coins | None = None, start: Instant | None = None
) -> list[dict[str, Any]]:
    """Return the fields of each update as a dict, as `updates`; needs no nautilus_trader.

    An update is a version, or a change of whether the event is missing: `is_missing` says that
    complete pulls do not show it any more. Several coins or categories are joined with `;`.
    `date_ns` is None unless the date is exact; `earliest_ns` and `latest_ns` bound it in any case.
    """
    reader = db.reader
    with reader.pinned():
        values = {
            "coins": slugs_of(reader, coins),
            "start": None if start is None else known_at(reader, start, "start"),
        }
        return [_record(row) for row in reader.result(_SQL["replay"], values)]


@cache
def update_class() -> Any:
    """Return the class `EventUpdate`: custom data of nautilus with the fields of a record.

    Raises:
        InvalidArgument: nautilus_trader is not installed.
    """
    base = framework("nautilus_trader.core.data", "nautilus_trader").Data
    custom = framework("nautilus_trader.model.custom", "nautilus_trader")
    body = {
        "__module__": __name__,
        "__qualname__": "EventUpdate",
        "__doc__": "The state of an event as known from `ts_init` on.",
        "__annotations__": dict(_FIELDS),
        **dict.fromkeys(_FIELDS),
    }
    return custom.customdataclass(type("EventUpdate", (base,), body))


def __getattr__(name: str) -> Any:
    """Make `EventUpdate` at its first use."""
    if name == "EventUpdate":
        return update_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with timestamps in nanoseconds under their names of nautilus."""
    found = {name: value for name, value in row.items() if name not in _NS}
    for micros, name in _NS.items():
        instant = None if row[micros] is None else row[micros] * 1000
        found[name] = instant if instant is None or abs(instant) < _NS_END else None
    return found
