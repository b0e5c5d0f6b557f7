"""The tables that events are normalised into, and the counts of their rows.

Belongs here: filling and counting `normalised`, `seen` and `rejected`. Does not: readers.
"""

from typing import Any, Final
from weakref import WeakSet

import duckdb

from catalog.contract.constants import IMPACT_MAX, IMPACT_MIN
from warehouse.landing.batches import Manifest
from warehouse.normalise.csv_lists import ListSeparators
from warehouse.normalise.sink import RAW_MAX, Sink
from warehouse.normalise.values import define_macros
from warehouse.schema.columns import BIT, GROUPS
from warehouse.sql import Statements, parsed

_SQL = Statements(__package__, GROUPS)

_BITS: Final = {f"{name}_bit": BIT[name] for name in ("title", "date", "impact", "impact_band")}
_PREPARED: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
"""Connections that have the macros and the view; both remain when the tables are replaced."""


def empty_events(connection: duckdb.DuckDBPyConnection) -> None:
    """Empty the table with the last batch's events, to free its memory."""
    connection.execute(parsed(_SQL["create_events"]))


class EventTables:
    """The tables of one batch, empty at first."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
        self.connection = connection
        self._manifest = manifest
        self.empty()
        if connection not in _PREPARED:
            # The position of a row in the file is its position in the table.
            connection.execute("SET preserve_insertion_order = true")
            define_macros(connection)
            connection.execute(_SQL["view_seen"])
            _PREPARED.add(connection)

    def empty(self) -> None:
        for name in ("rejected", "events"):
            self.connection.execute(parsed(_SQL[f"create_{name}"]))

    def values(self) -> dict[str, Any]:
        """Return the parameters of insert_events except those of its reader."""
        return {
            **_BITS,
            "observed_at": self._manifest.observed_at,
            "content_at": self._manifest.content_at,
            "impact_min": IMPACT_MIN,
            "impact_max": IMPACT_MAX,
        }

    def sink(self) -> Sink:
        """Return the sink for rows made in Python."""
        rows = _SQL["json_events"]
        insert = _SQL["insert_events"].replace("{arrived_rows}", rows)
        return Sink(self.connection, self._manifest.batch_id, parsed(insert), self.values())

    def counts(self) -> tuple[int, int, int]:
        """Return the number of rows, of unreadable rows, and of different ids among the others.

        Unchanged records are not counted.
        """
        count = parsed(_SQL["count_events"])
        return self.connection.execute(count).fetchall()[0]

    def reject(self) -> None:
        """Add the rows that SQL could not read to the rejected ones."""
        values = {"batch_id": self._manifest.batch_id, "raw_max": RAW_MAX}
        self.connection.execute(parsed(_SQL["reject_unread"]), values)

    def has_doubtful_lists(self, learnt: ListSeparators) -> bool:
        """Whether the separators of the file have to be found, by the rows that were read."""
        found = self.connection.execute(parsed(_SQL["find_doubtful_lists"])).fetchall()[0]
        categories_split, categories_doubtful, coins_split, coins_doubtful = found
        return bool(
            categories_doubtful
            or coins_doubtful
            or (categories_split and learnt.categories is None)
            or (coins_split and learnt.coins is None)
        )
