"""The temporary tables that a batch is read into, and the counts of their rows.

`Sink` inserts rows made in Python: a chunk is one JSON text, bound to a statement. `EventTables`
holds `normalised`, `seen` and `rejected`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

import duckdb
import msgspec

from almanac.core.connections import parse
from almanac.core.statements import Statements
from catalog.contract.constants import IMPACT_MAX, IMPACT_MIN
from warehouse import size_limits
from warehouse.codecs import holds_nul, raw_text, storable_text
from warehouse.landing.batches import Manifest
from warehouse.normalise.rows import BadRow, define_macros
from warehouse.schema.columns import BIT, GROUPS

_SQL = Statements(__package__, GROUPS)

RAW_MAX: Final = 65_536
"""Characters of a rejected row that are kept."""
_ROWS: Final = 8_192
_BYTES: Final = 8 << 20
_ENCODER: Final = msgspec.json.Encoder()
_BITS: Final = {
    f"{name}_bit": BIT[name]
    for name in ("title", "date", "categories", "coins", "impact", "impact_band")
}
_PREPARED: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
"""Connections that have the macros and the view; both remain when the tables are replaced."""


class BatchCounts:
    """The rows that arrived, counted from the pages themselves, and the faults of the pages."""

    def __init__(self) -> None:
        self.arrived = 0
        self.rejected = 0
        self.ignored = 0
        self.notes: dict[str, None] = {}
        self.faults: list[str] = []
        self.unchanged = 0
        """Unchanged records of an export. The tables of rows do not have them."""
        self.learnt: str | None = None
        """The separator of lists, if this export shows it first."""

    def note(self, words: str) -> None:
        self.notes[words] = None


class Sink:
    """Collects rows and inserts them. `insert` is the statement, `values` its parameters."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        batch_id: str,
        insert: str | duckdb.Statement,
        values: dict[str, Any],
    ) -> None:
        rejected = {"batch_id": batch_id}
        self._good = _Chunk(lambda rows: connection.execute(insert, values | rows))
        self._bad = _Chunk(lambda rows: connection.execute(_SQL["reject_rows"], rejected | rows))
        self.rejected = 0

    @contextmanager
    def filling(self, counts: BatchCounts) -> Iterator["Sink"]:
        """Yield the sink; at the end insert the rest, and count the rejected rows."""
        yield self
        self._good.flush()
        self._bad.flush()
        counts.rejected = self.rejected

    def add(self, row: dict[str, Any] | list[str]) -> None:
        """Add one row. Raises BadRow: it has a character that can't be stored, or is too large."""
        try:
            encoded = _ENCODER.encode(row)
        except UnicodeEncodeError as error:
            raise BadRow("a text is not UTF-8, or has half of a surrogate pair") from error
        if len(encoded) > size_limits.ROW_BYTES:
            raise BadRow(f"a row of {len(encoded)} bytes; expected at most {size_limits.ROW_BYTES}")
        if b"\\u0000" in encoded and holds_nul(row):
            raise BadRow("a text contains the character NUL")
        self._good.add(encoded)

    def reject(self, position: int, reason: str, raw: Any) -> None:
        """Add an unreadable row with the reason; above `size_limits.REJECTS`, only count it."""
        self.rejected += 1
        if self.rejected > size_limits.REJECTS:
            return
        text = raw if isinstance(raw, str) else raw_text(raw)
        if len(text) > RAW_MAX:
            reason, text = f"{reason} (raw text cut)", text[:RAW_MAX]
        row = {"position": position, "reason": storable_text(reason), "raw": storable_text(text)}
        self._bad.add(_ENCODER.encode(row))


class _Chunk:
    """Encoded rows that are inserted together; `insert` receives them as a parameter."""

    def __init__(self, insert: Callable[[dict[str, str]], object]) -> None:
        self._insert = insert
        self._rows: list[bytes] = []
        self._bytes = 0

    def add(self, row: bytes) -> None:
        if len(self._rows) >= _ROWS or self._bytes + len(row) > _BYTES:
            self.flush()
        self._rows.append(row)
        self._bytes += len(row)

    def flush(self) -> None:
        if self._rows:
            self._insert({"rows": (b"[" + b",".join(self._rows) + b"]").decode()})
        self._rows, self._bytes = [], 0


def empty_events(connection: duckdb.DuckDBPyConnection) -> None:
    """Empty the table with the last batch's events, to free its memory."""
    connection.execute(parse(_SQL["create_events"]))


def prepare_events(connection: duckdb.DuckDBPyConnection) -> None:
    """Define the macros and the view of a connection, once.

    Call it before a transaction: a rollback would remove them.
    """
    if connection in _PREPARED:
        return
    # The position of a row in the file is its position in the table.
    connection.execute("SET preserve_insertion_order = true")
    define_macros(connection)
    empty_events(connection)
    connection.execute(_SQL["view_seen"])
    _PREPARED.add(connection)


class EventTables:
    """The tables of one batch, empty at first."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
        prepare_events(connection)
        self.connection = connection
        self._manifest = manifest
        self.empty()

    def empty(self) -> None:
        for name in ("rejected", "events", "unchanged"):
            self.connection.execute(parse(_SQL[f"create_{name}"]))

    def values(self) -> dict[str, Any]:
        """Return the parameters of insert_events except the reader's."""
        return {
            **_BITS,
            "observed_at": self._manifest.observed_at,
            "content_at": self._manifest.content_at,
            "impact_min": IMPACT_MIN,
            "impact_max": IMPACT_MAX,
        }

    def insert(self, arrived_rows: str, values: dict[str, Any]) -> None:
        insert = _SQL.fill("insert_events", arrived_rows=arrived_rows)
        self.connection.execute(parse(insert), self.values() | values)

    def sink(self, arrived_rows: str | None = None, values: dict[str, Any] | None = None) -> Sink:
        arrived_rows = arrived_rows or _SQL["json_events"]
        insert = _SQL.fill("insert_events", arrived_rows=arrived_rows)
        values = self.values() | (values or {})
        return Sink(self.connection, self._manifest.batch_id, parse(insert), values)

    def counts(self) -> tuple[int, int, int]:
        """Return the number of rows, of unreadable rows, and of distinct ids among the readable
        rows.

        Unchanged records are not counted.
        """
        count = parse(_SQL["count_events"])
        return self.connection.execute(count).fetchall()[0]

    def reject(self) -> None:
        """Add the rows that SQL could not read to the rejected ones."""
        values = {"batch_id": self._manifest.batch_id, "raw_max": RAW_MAX}
        self.connection.execute(parse(_SQL["reject_unread"]), values)
