"""Inserts rows prepared in Python, in chunks of JSON bound to a statement; and their counts.

A chunk is one bound text, without a file or Arrow in between. Belongs here: chunks, and the
conditions for storing a row. Does not: the meaning of a row (json_rows).
"""

from typing import Any, Final

import duckdb
import msgspec

from warehouse import bounds
from warehouse.normalise.csv_lists import ListSeparators
from warehouse.normalise.values import BadRow, holds_nul, raw_text, storable_text
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_SQL = Statements(__package__, GROUPS)

RAW_MAX: Final = 65_536
"""Characters of a rejected row that are kept."""
_ROWS: Final = 8_192
_BYTES: Final = 8 << 20
_ENCODER: Final = msgspec.json.Encoder()


class Sink:
    """Collects rows and inserts them. `insert` is the statement, `values` its parameters."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        batch_id: str,
        insert: str | duckdb.Statement,
        values: dict[str, Any],
    ) -> None:
        self._connection = connection
        self._batch_id = batch_id
        self._insert = insert
        self._values = values
        self._good = _Chunk()
        self._bad = _Chunk()
        self.rejected = 0

    def add(self, row: dict[str, Any]) -> None:
        """Add one row.

        Raises:
            BadRow: it has a character that can't be stored, or is too large.
        """
        try:
            encoded = _ENCODER.encode(row)
        except UnicodeEncodeError as error:
            raise BadRow("a text is not UTF-8, or has half of a surrogate pair") from error
        if len(encoded) > bounds.ROW_BYTES:
            raise BadRow(f"a row of {len(encoded)} bytes; expected at most {bounds.ROW_BYTES}")
        if b"\\u0000" in encoded and holds_nul(row):
            raise BadRow("a text contains the character NUL")
        if self._good.full(encoded):
            self._flush_good()
        self._good.add(encoded)

    def reject(self, position: int, reason: str, raw: Any) -> None:
        """Add an unreadable row with the reason; above `bounds.REJECTS`, only count it."""
        self.rejected += 1
        if self.rejected > bounds.REJECTS:
            return
        text = raw if isinstance(raw, str) else raw_text(raw)
        if len(text) > RAW_MAX:
            reason, text = f"{reason} (raw text cut)", text[:RAW_MAX]
        row = {"position": position, "reason": storable_text(reason), "raw": storable_text(text)}
        encoded = _ENCODER.encode(row)
        if self._bad.full(encoded):
            self._flush_bad()
        self._bad.add(encoded)

    def close(self) -> None:
        self._flush_good()
        self._flush_bad()

    def _flush_good(self) -> None:
        if self._good.rows:
            self._connection.execute(self._insert, {**self._values, "rows": self._good.drain()})

    def _flush_bad(self) -> None:
        if self._bad.rows:
            values = {"batch_id": self._batch_id, "rows": self._bad.drain()}
            self._connection.execute(_SQL["reject_rows"], values)


class _Chunk:
    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self._bytes = 0

    def full(self, more: bytes) -> bool:
        return len(self.rows) >= _ROWS or (bool(self.rows) and self._bytes + len(more) > _BYTES)

    def add(self, row: bytes) -> None:
        self.rows.append(row)
        self._bytes += len(row)

    def drain(self) -> str:
        text = b"[" + b",".join(self.rows) + b"]"
        self.rows, self._bytes = [], 0
        return text.decode()


class BatchCounts:
    """The rows that arrived, counted from the pages themselves, and the faults of the pages."""

    def __init__(self) -> None:
        self.arrived = 0
        self.rejected = 0
        self.ignored = 0
        self.notes: dict[str, None] = {}
        self.faults: list[str] = []
        self.flagged: str | None = None
        self.learnt: ListSeparators | None = None

    def note(self, words: str) -> None:
        self.notes[words] = None
