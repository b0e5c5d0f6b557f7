"""`attach_known` and `features` on the rows of a worker, by the code of `Database`.

The driver resolves the coins of all rows before the job: whether a text is a slug or a ticker may
depend on the other texts of its column, and an unknown coin is an error before any work.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from almanac.coins import LabelledCoins, resolve_each_pair, resolve_pairs
from almanac.database import Database
from almanac.events import Names, one_of
from almanac.frames import Moments
from almanac.instants import ORIGIN, US, Duration, duration
from almanac.joins import AsOf, Unknown, bar_lag_us, filter_values
from almanac.next_events import KnownRows, join_slices, refuse_future
from almanac.reader import Reader
from almanac.streams import open_stream

SLICE_ROWS: Final = 200_000
"""The rows that a worker joins at a time."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The arguments of `attach_known`; with `bar` those of `features`."""

    ts: str = "ts"
    coin: str = "coin"
    horizon: Duration = "7d"
    prefix: str = ""
    categories: Names | None = None
    min_impact: float | None = None
    unknown: Unknown = "raise"
    coins: LabelledCoins | None = None
    bar: Duration | None = None
    as_of: AsOf = "bar_close"


@dataclass(frozen=True, slots=True)
class RowJoin:
    """A join that is ready for workers; `slugs` has the coin of each text, None for none."""

    ts: str
    coin: str
    prefix: str
    horizon: timedelta
    filters: Mapping[str, Any]
    slugs: Mapping[str, str | None]
    bar_us: int | None
    key: str

    def schema(self, database: Database, columns: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns of the answer for rows with these columns, in order."""
        given = pa.schema(list(columns.items()))
        return next(self._tables(database, pa.RecordBatchReader.from_batches(given, []))).schema

    def join(self, database: Database, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their new columns, in order.

        Raises: as `Database.attach_known`.
        """
        for table in self._tables(database, rows):
            yield from table.to_batches()

    def join_table(self, database: Database, rows: pa.Table) -> pa.Table:
        """Return the rows of a table with their new columns.

        Raises: as `Database.attach_known`.
        """
        stream = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
        return pa.concat_tables(self._tables(database, stream))

    def _tables(self, database: Database, rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
        reader = database.reader
        stream = open_stream(rows, "frame")
        assert stream is not None
        now = reader.now()
        known = self._known_rows(reader, now)
        names = (self.ts, self.coin, self.prefix)
        return join_slices(known, stream, *names, reader.tz, now, SLICE_ROWS, self.bar_us)

    def _known_rows(self, reader: Reader, now: datetime) -> KnownRows:
        """Return the events ahead of the coins, cached for the next task of this process."""
        key = (id(reader), self.key)
        if key not in _known:
            _known.clear()
            range_us = (0, (now - ORIGIN) // US)
            _known[key] = KnownRows(
                reader,
                self.horizon,
                self.filters,
                range_us,
                None,
                is_strict=False,
                slugs=self.slugs,
            )
        return _known[key]


_known: Final[dict[tuple[int, str], KnownRows]] = {}


def prepare_join(
    database: Database,
    options: JoinOptions,
    texts: Iterable[str | None],
    last_us: int | None = None,
) -> RowJoin:
    """Resolve the arguments of a join, and the distinct texts of the column of coins.

    `last_us` is the latest timestamp of the rows, if it is known.

    Raises: as `Database.attach_known`, before any row is joined.
    """
    reader = database.reader
    is_strict = one_of(options.unknown, "unknown", ("raise", "ignore")) == "raise"
    wanted = sorted(text for text in texts if text is not None)
    with reader.pinned():
        if last_us is not None:
            latest = pa.array([last_us], pa.int64())
            moments = Moments(latest.to_numpy(), latest.is_valid().to_numpy(zero_copy_only=False))
            refuse_future(moments, "the latest rows of the frame", reader.now())
        found = resolve_pairs(reader, wanted, options.coins)
        if is_strict:
            resolve_each_pair(reader, [text for text in wanted if text not in found])  # Raises.
        filters = filter_values(reader, options.categories, options.min_impact)
    bar_us = None if options.bar is None else bar_lag_us(options.bar, options.as_of)
    slugs = {text: found[text].slug if text in found else None for text in wanted}
    span = duration(options.horizon, "horizon")
    names = (options.ts, options.coin, options.prefix)
    key = hashlib.sha256(repr((names, span, filters, slugs, bar_us)).encode()).hexdigest()
    return RowJoin(*names, span, filters, slugs, bar_us, key)
