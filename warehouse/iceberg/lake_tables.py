"""The Iceberg tables, declared: columns, partition, statistics, and how they are cut into files.

A file holds one *part* of a table, such as the events of a month. A commit replaces the parts that
differ. `hashed` parts are compared by a hash of their rows, `days` by the sha256 of the day's file
in the lake, `versions` as parts.py says, `steps` as step_parts.py says.
"""

from dataclasses import dataclass
from typing import Final, Literal

from almanac import lake
from warehouse.schema import tables
from warehouse.schema.columns import CONTENT, Column, count, instant, text

Parts = Literal["hashed", "days", "versions", "steps"]
Partition = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class LakeTable:
    """An Iceberg table. `bounded` are the columns whose least and greatest value is recorded for
    each file, so that readers skip files."""

    name: str
    columns: tuple[Column, ...]
    parts: Parts = "hashed"
    partition: tuple[str, Partition] | None = None
    bounded: tuple[str, ...] = ()


_DERIVED: Final = ("known_to", "first_seen_at")
"""Columns that a later version changes; readers derive them."""
_STORED: Final = tuple(
    column for column in tables.EVENT_VERSIONS.columns if column.name not in _DERIVED
)
_VERSION_COLUMNS: Final = {column.name: column for column in _STORED}
_LOGGED: Final = (
    *("event_id", "version", "known_from", "known_basis", "change_kinds", "changed_fields"),
    *("batch_id", "feed", "plan", "content_at"),
)
EVENT_CHANGES: Final = LakeTable(
    "event_changes",
    (
        *(_VERSION_COLUMNS[name] for name in _LOGGED),
        *CONTENT,
        count("known", "Bit n is set if the n-th field is known.", ""),
        text("extra", "Fields without a column, as JSON."),
    ),
    parts="days",
    partition=("known_from", "day"),
    bounded=("event_id", "known_from"),
)
EVENT_VERSIONS: Final = LakeTable(
    "event_versions", _STORED, parts="versions", bounded=("event_id", "known_from")
)
EVENTS: Final = LakeTable(
    "events",
    tables.EVENTS.columns,
    partition=("date", "month"),
    bounded=("event_id", "date", "earliest", "latest"),
)
COINS: Final = LakeTable("coins", tables.COINS.columns, bounded=("slug",))
COIN_SNAPSHOTS: Final = LakeTable(
    "coin_snapshots",
    tables.COIN_SNAPSHOTS.columns,
    partition=("observed_date", "month"),
    bounded=("observed_date", "coin"),
)
CANCELLATIONS: Final = LakeTable("cancellations", tables.CANCELLATIONS.columns)
EVENT_STEPS: Final = LakeTable(
    "event_steps",
    (
        text("coin", "Coin slug."),
        instant("valid_from", "From when on the row holds, until the coin's next step."),
        text("next_event_id", "The coin's next event within 7 days; NULL without one."),
        text("next_event_title", "Its title."),
        instant("next_event_date", "Its date."),
        text("next_event_precision", "`instant`, or `day`: it begins at the end of the UTC day."),
        text("next_event_categories", "Its categories, joined by `; `."),
        Column("next_event_impact", "DOUBLE", "Its impact; NULL if unknown.", "0 to 10"),
        text("next_event_band", "Its impact band."),
        instant("next_event_known_from", "When this became known."),
        instant("next_event_first_seen_at", "When the event was first seen."),
        count("events_ahead", "The coin's events that begin within 7 days."),
        Column(
            "watched",
            "BOOLEAN",
            "Whether a complete pull in the two days before covered the coin for 7 days.",
        ),
    ),
    parts="steps",
    bounded=("coin", "valid_from"),
)
"""The answers of `attach_known` with its defaults; each timestamp is there once per coin."""
PUBLICATIONS: Final = LakeTable(
    lake.PUBLICATIONS,
    (
        text("publication", "Id of the newest publication."),
        instant("published_at", "Its time, by the machine's clock."),
        text("table_name", "A table."),
        count("snapshot_id", "The snapshot of the table in this publication.", ""),
    ),
)
"""Committed last: the snapshot of each other table."""
LAKE_TABLES: Final = (
    *(EVENT_CHANGES, EVENT_VERSIONS, EVENTS, COINS, COIN_SNAPSHOTS, CANCELLATIONS),
    EVENT_STEPS,
)
