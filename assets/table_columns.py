"""The columns of each asset as Dagster shows them, and the columns they come from."""

from collections.abc import Iterable, Mapping
from typing import Final

import dagster as dg

from assets.layout import Layout
from warehouse.history import partitions
from warehouse.landing.batches import Feed
from warehouse.schema import tables
from warehouse.schema.columns import (
    CONTENT_AT,
    CONTENT_NAMED,
    EVENT_ID,
    FIELDS,
    FIRST_SEEN_AT,
    LAST_SEEN_AT,
    MISSING_SINCE,
    Column,
)
from warehouse.schema.tables import Table

_EVENT: Final = (EVENT_ID, *FIELDS)
LANDED_COLUMNS: Final[Mapping[Feed, tuple[Column, ...]]] = {
    "export": _EVENT,
    "events": _EVENT,
    "event": _EVENT,
    "cancellations": (EVENT_ID, CONTENT_NAMED["cancelled_at"]),
    "coins": tuple(
        column
        for column in tables.COINS.columns
        if column not in (FIRST_SEEN_AT, LAST_SEEN_AT, MISSING_SINCE, CONTENT_AT)
    ),
    "categories": tuple(
        column for column in tables.CATEGORIES.columns if column.name in ("id", "name")
    ),
    "deliveries": _EVENT,
}
"""The columns of each feed, as they are named after normalisation."""
CHANGES_COLUMNS: Final = tuple(
    column for column in tables.EVENT_VERSIONS.columns if column.name in partitions.CHANGES_COLUMNS
)
"""The columns of the files of the changes."""
_DERIVED: Final[Mapping[str, tuple[str, ...]]] = {
    "date_precision": ("date", "date_type", "is_estimated"),
    "earliest": ("date", "date_type", "is_estimated"),
    "latest": ("date", "date_end", "date_type", "is_estimated"),
    "displayed_date_full": ("displayed_date", "date", "date_end"),
    "first_seen_at": ("known_from",),
    "changed_at": ("known_from",),
    "known_to": ("known_from",),
    "published_seq": ("known_from",),
}
"""Columns of the tables of events that follow from columns of other names."""
_EVENT_FEEDS: Final = ("landed_export", "landed_events", "landed_calendar", "landed_deliveries")
_EVENT_TABLES: Final = (tables.EVENTS, tables.EVENT_VERSIONS)
_TABLES_OF_FEEDS: Final = {
    "coins": "landed_coins",
    "coin_snapshots": "landed_coins",
    "categories": "landed_categories",
    "cancellations": "landed_cancellations",
}
_LINKS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("event_coins", "event_id"): ("event_changes", "event_id"),
    ("event_coins", "coin"): ("event_changes", "coins"),
    ("event_coins", "symbol"): ("landed_coins", "symbol"),
    ("event_coins", "name"): ("landed_coins", "name"),
    ("event_categories", "event_id"): ("event_changes", "event_id"),
    ("event_categories", "category"): ("event_changes", "categories"),
    ("event_categories", "category_id"): ("landed_categories", "id"),
    ("event_absences", "event_id"): ("event_changes", "event_id"),
}
"""Columns of other tables, and the asset and column that each comes from."""
_CHANGED: Final = frozenset(column.name for column in CHANGES_COLUMNS)
_OF_FEEDS: Final = {
    f"landed_{feed}": frozenset(column.name for column in columns)
    for feed, columns in LANDED_COLUMNS.items()
}


def column_schema(columns: Iterable[Column]) -> dg.TableSchema:
    """Return the schema that Dagster shows, with types of DuckDB and the meaning of each column."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(column.name, column.type, description=column.meaning)
            for column in columns
        ]
    )


def changes_lineage(layout: Layout) -> dg.TableColumnLineage:
    """Return the columns of the feeds that each column of the changes comes from."""
    sources = {column.name: [(feed, column.name) for feed in _EVENT_FEEDS] for column in _EVENT}
    return _lineage(layout, {**sources, "cancelled_at": [("landed_cancellations", "cancelled_at")]})


def table_lineage(layout: Layout, table: Table) -> dg.TableColumnLineage:
    """Return the columns that each column of a published table comes from."""
    return _lineage(layout, {name: _sources(table, name) for name in table.names})


def _sources(table: Table, name: str) -> list[tuple[str, str]]:
    """Return the assets and columns that a column of a published table comes from."""
    if table in _EVENT_TABLES:
        found = _DERIVED.get(name, (name,))
        return [("event_changes", column) for column in found if column in _CHANGED]
    if (feed := _TABLES_OF_FEEDS.get(table.name)) is not None:
        column = "slug" if name == "coin" else name
        return [(feed, column)] if column in _OF_FEEDS[feed] else []
    link = _LINKS.get((table.name, name))
    return [] if link is None else [link]


def _lineage(layout: Layout, sources: Mapping[str, list[tuple[str, str]]]) -> dg.TableColumnLineage:
    return dg.TableColumnLineage(
        {
            name: [
                dg.TableColumnDep(asset_key=layout.key(asset), column_name=column)
                for asset, column in found
            ]
            for name, found in sources.items()
            if found
        }
    )
