"""Unchanged records of an export are not typed, classified and compared a second time.

Most records of an export are the same as the day before. The state keeps the md5 of each record
that it accepted from an export, until anything else about its event is accepted. A record with
that md5 only shows that the event was seen. Belongs here: finding such records. Does not: their
effect (touch_unchanged), reading the other records (csv_reader.py).
"""

import copy
from typing import Any, NamedTuple

import duckdb

from warehouse.landing.batches import Manifest
from warehouse.normalise.sink import BatchCounts
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, parsed

_SQL = Statements(__package__, GROUPS)


class _Body(NamedTuple):
    """The export whose records are in `arrived`: its hash, its plan, its counts."""

    sha256: str
    plan: str
    counts: BatchCounts


class UnchangedRecords:
    """The unchanged records of an export. Uses the tables `event_seen` and `arrived`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._body: _Body | None = None
        self._is_allowed = False
        self._is_on = False
        self.count = 0
        """Number of unchanged records in the current batch."""

    @property
    def is_on(self) -> bool:
        """Whether unchanged records were searched in the current batch."""
        return self._is_on

    def begin(self) -> None:
        """Begin a batch, without any unchanged record so far."""
        self._is_allowed, self._is_on, self.count = True, False, 0
        self._connection.execute(parsed(_SQL["nothing_unchanged"]))

    def forget(self) -> None:
        """Treat every record of the current batch as new."""
        self.begin()
        self._body, self._is_allowed = None, False

    def may_find(self) -> bool:
        """Whether any record can be unchanged; if not, no search is needed."""
        if not self._is_allowed:
            return False
        return bool(self._connection.execute(parsed(_SQL["has_accepted_records"])).fetchall()[0][0])

    def find(self, query: str, values: dict[str, Any]) -> int | None:
        """Run the query that fills `arrived` from a file; return the number of its records.

        None if an id occurs twice: the content of its rows decides which is used.

        Raises:
            duckdb.Error: the file can't be read that way.
        """
        self._body = None
        self._connection.execute(query, values)
        records, ids, different, unchanged = self._counts()
        if ids != different:
            return None
        self._use(unchanged)
        return records

    def note(self, manifest: Manifest, counts: BatchCounts) -> None:
        """Record that `arrived` has all records of a body, if it was read without a fault."""
        if self._is_on and not counts.faults:
            kept = copy.deepcopy(counts)
            kept.learnt = None
            self._body = _Body(manifest.sha256, manifest.plan, kept)

    def same_body_as_before(self, manifest: Manifest) -> BatchCounts | None:
        """Return the counts of the previous export if this body is the same and still valid."""
        body = self._body
        if body is None or (body.sha256, body.plan) != (manifest.sha256, manifest.plan):
            return None
        self._connection.execute(_SQL["find_unchanged_of_body"])
        records, _, _, unchanged = self._counts()
        if unchanged != records:
            self._body = None
            return None
        self._use(unchanged)
        return copy.deepcopy(body.counts)

    def _use(self, unchanged: int) -> None:
        self._connection.execute(_SQL["view_unchanged"])
        self.count, self._is_on = unchanged, True

    def _counts(self) -> tuple[int, int, int, int]:
        counts: tuple[int, int, int, int] = self._connection.execute(
            _SQL["count_arrived"]
        ).fetchall()[0]
        return counts
