"""Joins and audits of Spark frames, by the code of `Database` on each executor.

    from almanac import spark as almanac_spark

    known = almanac_spark.attach_known(frame, "data", horizon="14d", min_impact=6)

A frame keeps the publication of its call: the driver sends a copy of the published file, named by
the publication. The driver also resolves the coins, since a text may be a slug or a ticker,
depending on the other texts of its column. The cluster has PySpark 4, and this package on each
executor.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from almanac.coins import LabelledCoins, resolve_each_pair, resolve_pairs
from almanac.database import Database, open_database
from almanac.events import Basis, Names, check_choice
from almanac.joins import AsOf, Unknown, bar_lag_us, make_filter_values
from almanac.next_events import KnownRows, join_slices
from almanac.reader import CoinTexts, find_file
from almanac.reading.query_limits import QueryLimits
from almanac.reading.temporary_files import own_folder
from almanac.streams import open_stream
from almanac.timestamps import ORIGIN, US, Duration, read_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LIMITS: Final = QueryLimits(memory_bytes=500_000_000, threads=1)
"""Of a task."""
_SLICE_ROWS: Final = 200_000
_Work = Callable[[Database, pa.RecordBatchReader], Iterator[pa.Table]]
"""Yields tables for the rows of a partition; the first shows the columns, and may have no rows."""


def attach_known(frame: "DataFrame", home: str | Path, **options: Any) -> "DataFrame":
    """Return a Spark frame with the next event of each coin, as `Database.attach_known`.

    Options are those of `Database.attach_known`, and `tz` and `coins_are` of `almanac.open`. The
    call reads the distinct coins; the rest is computed when the frame is used.

    Errors are those of `Database.attach_known`. A future timestamp, or a text that is not a
    timestamp, fails when the frame is computed.
    """
    return _join(frame, home, None, **options)


def features(
    frame: "DataFrame", home: str | Path, bar: Duration, as_of: AsOf = "bar_close", **options: Any
) -> "DataFrame":
    """Return a Spark frame of bars with the columns of `Database.features`.

    A row is a bar of one coin, and `ts` the time at which it opens. A bar that has not closed yet
    has `known_at` alone. Options are those of `attach_known`.

    Raises: as `attach_known`.
    """
    return _join(frame, home, bar_lag_us(bar, as_of), **options)


def audit(
    frame: "DataFrame",
    home: str | Path,
    *,
    decided_at: str | None = None,
    fields: Mapping[str, str | None] | None = None,
    basis: Basis = "observed",
    tz: str = "UTC",
    coins_are: CoinTexts = "any",
) -> "DataFrame":
    """Return the findings of `Database.audit` as a Spark frame: a row per value that is not clean.

    It has the columns of `Audit.rows` except the row number, which a partition does not know.

    Raises: as `Database.audit`.
    """

    def find(database: Database, rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
        found = database.audit(rows, decided_at=decided_at, fields=fields, basis=basis)
        yield found.rows.arrow().drop_columns("row")

    sent = _SentPublication.copy(home, tz, coins_are)
    with sent.open() as database:
        schema = _schema_of(frame, find, database)
    return sent.map(frame, find, schema)


def _join(
    frame: "DataFrame",
    home: str | Path,
    bar_us: int | None,
    ts: str = "ts",
    coin: str = "coin",
    horizon: Duration = "7d",
    prefix: str = "",
    *,
    categories: Names | None = None,
    min_impact: float | None = None,
    unknown: Unknown = "raise",
    coins: LabelledCoins | None = None,
    tz: str = "UTC",
    coins_are: CoinTexts = "any",
) -> "DataFrame":
    from pyspark.sql.types import StructType

    sent = _SentPublication.copy(home, tz, coins_are)
    with sent.open() as database:
        reader = database.reader
        filters = make_filter_values(reader, categories, min_impact)
        span, slugs = read_duration(horizon, "horizon"), dict[str, str | None]()

        def join(database: Database, rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
            reader, now = database.reader, database.reader.now()
            stream, range_us = open_stream(rows, "frame"), (0, (now - ORIGIN) // US)
            assert stream is not None
            known = KnownRows(reader, span, filters, range_us, None, is_strict=False, slugs=slugs)
            return join_slices(known, stream, ts, coin, prefix, reader.tz, now, _SLICE_ROWS, bar_us)

        # Before Spark sees the columns: a missing one is an error of Almanac.
        new = _schema_of(frame, join, database).fields[len(frame.columns) :]
        column = frame["`" + coin.replace("`", "``") + "`"].cast("string")
        texts = sorted(row[0] for row in frame.select(column).distinct().dropna().collect())
        found = resolve_pairs(reader, texts, coins)
        if check_choice(unknown, "unknown", ("raise", "ignore")) == "raise":
            resolve_each_pair(reader, [text for text in texts if text not in found])
    slugs.update({text: found[text].slug if text in found else None for text in texts})
    return sent.map(frame, join, StructType([*frame.schema.fields, *new]))


def _schema_of(frame: "DataFrame", work: _Work, database: Database) -> Any:
    """Return the Spark schema of the rows that a function returns for a part of a frame."""
    rows = pa.RecordBatchReader.from_batches(frame.limit(0).toArrow().schema, [])
    first = next(work(database, rows)).slice(0, 0)
    return frame.sparkSession.createDataFrame(first).schema


@dataclass(frozen=True, slots=True)
class _SentPublication:
    """A published file under the name of its publication, and the time of the call."""

    file: Path
    tz: str
    coins_are: CoinTexts
    now: datetime

    @classmethod
    def copy(cls, home: str | Path, tz: str, coins_are: CoinTexts) -> "_SentPublication":
        """Copy the newest publication; the copy is removed with this process."""
        unnamed = own_folder() / "almanac-unnamed.duckdb"
        shutil.copyfile(find_file(home), unnamed)
        with open_database(unnamed, follow=False) as database:
            named = unnamed.with_name(f"almanac-{database.publication.id}.duckdb")
        return cls(unnamed.replace(named), tz, coins_are, datetime.now(UTC))

    def open(self, file: Path | None = None) -> Database:
        """Return the database; an executor has the file elsewhere."""
        now = self.now
        return open_database(
            file or self.file,
            self.tz,
            follow=False,
            limits=_LIMITS,
            clock=lambda: now,
            coins_are=self.coins_are,
        )

    def map(self, frame: "DataFrame", work: _Work, schema: Any) -> "DataFrame":
        """Run work on the rows of each partition, as one stream."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import SparkFiles

            if (first := next(batches, None)) is not None:
                rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
                with self.open(Path(SparkFiles.get(self.file.name))) as database:
                    for table in work(database, rows):
                        yield from table.to_batches()

        frame.sparkSession.addArtifacts(str(self.file), file=True)
        return frame.mapInArrow(run, schema)
