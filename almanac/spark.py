"""Joins, audits and Iceberg tables on Spark frames.

No rule is written for Spark: each executor runs this package on its rows, over one publication,
which the driver pins and sends. PySpark is not a dependency; the cluster has it.

    from almanac import spark as almanac_spark

    frame = almanac_spark.attach_known(frame, "data")
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from almanac.audit.report import Audit
from almanac.cluster.pinned_publication import PinnedPublication, pin_publication
from almanac.cluster.row_audit import PART, RowAudit
from almanac.cluster.row_join import JoinOptions, prepare_join
from almanac.coins import LabelledCoins
from almanac.database import Database, open_database
from almanac.errors import InvalidArgument
from almanac.events import Basis, Names
from almanac.instants import Duration
from almanac.joins import AsOf, Unknown
from almanac.lake import VERSIONS, Lake, LakePublication, open_lake, versions_statement
from almanac.reader import find_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_COINS_MAX: Final = 1_000_000
"""Distinct texts in the column of coins that the driver resolves."""
_GIVEN: Final[Mapping[str, pa.DataType]] = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "string": pa.string(),
}


@dataclass(frozen=True, slots=True)
class SentFile:
    """A pinned publication on executors: among Spark's files, or at a path that all share."""

    publication: PinnedPublication
    shared: Path | None

    def open(self) -> Database:
        """Return the database of this process.

        Raises:
            WarehouseError: the file did not reach this executor, or is another publication.
        """
        from pyspark import SparkFiles

        file = self.shared or Path(SparkFiles.get(self.publication.name))
        return self.publication.open(file)


def attach_known(
    frame: "DataFrame",
    home: str | Path | Database,
    ts: str = "ts",
    coin: str = "coin",
    horizon: Duration = "7d",
    prefix: str = "",
    *,
    categories: Names | None = None,
    min_impact: float | None = None,
    unknown: Unknown = "raise",
    coins: LabelledCoins | None = None,
    send: bool = True,
) -> "DataFrame":
    """Return a Spark frame with the next event of each coin, as `Database.attach_known`.

    The arguments, columns and rules are the same. A Spark timestamp is a point in time, whatever
    the zone of the session; a timestamp without a zone (`timestamp_ntz`) is in the zone of the
    database. The call reads the distinct coins and the latest timestamp; the rest is computed when
    the frame is used. The frame keeps the publication that is the newest now.

    Args:
        send: False if `home` is on a disk that all executors share. Then nothing is copied or sent;
            a later publication stops the job.

    The errors are those of `Database.attach_known`. A text that is not a timestamp fails when the
    frame is computed.
    """
    options = JoinOptions(ts, coin, horizon, prefix, categories, min_impact, unknown, coins)
    return _join_rows(frame, home, options, send=send)


def features(
    frame: "DataFrame",
    home: str | Path | Database,
    bar: Duration,
    ts: str = "ts",
    coin: str = "coin",
    as_of: AsOf = "bar_close",
    horizon: Duration = "7d",
    prefix: str = "",
    *,
    categories: Names | None = None,
    min_impact: float | None = None,
    unknown: Unknown = "raise",
    coins: LabelledCoins | None = None,
    send: bool = True,
) -> "DataFrame":
    """Return a Spark frame of bars with the columns of `Database.features`.

    A row is a bar of one coin; `ts` is the time at which it opens. New columns are those of
    `attach_known` as of `known_at`, the time of the knowledge. A bar that has not closed yet has
    only `known_at`. Other arguments are as in `attach_known`.

    Raises: as `attach_known`; a bar that opens in the future is an error.
    """
    options = JoinOptions(
        ts, coin, horizon, prefix, categories, min_impact, unknown, coins, bar, as_of
    )
    return _join_rows(frame, home, options, send=send)


@dataclass(frozen=True, slots=True)
class FrameAudit:
    """The audit of a Spark frame.

    Attributes:
        summary: an `Audit` of all rows, with the same counts as `Database.audit`. Its `rows` has
            the first 1,000 findings of each verdict, and its `verdicts` only counts. The number of
            a row is that of `monotonically_increasing_id`.
        rows: the Spark frame with `verdict`, the worst of the row, and `findings`, an array with
            field, verdict, used, known_then, knowable_from and reason of each value that is not
            clean. It is computed when it is used.
    """

    summary: Audit
    rows: "DataFrame"


def audit(
    frame: "DataFrame",
    home: str | Path | Database,
    *,
    decided_at: str | None = None,
    fields: Mapping[str, str | None] | None = None,
    basis: Basis = "observed",
    universe: Mapping[str, Any] | None = None,
    send: bool = True,
) -> FrameAudit:
    """Find rows of a Spark frame that used future information, as `Database.audit`.

    One job counts the verdicts. Other arguments are as in `Database.audit` and `attach_known`.

    Raises:
        InvalidArgument: the frame has no column that is needed, or one named `verdict` or
            `findings`; or `universe` is given, which needs all decisions in one process.
    """
    from pyspark import TaskContext

    if universe is not None:
        raise InvalidArgument(
            "universe: the comparison needs all decisions in one process. Nothing was computed. "
            "Write the event_id and the decision of each row to Parquet, and use db.audit(path, "
            "universe=…)"
        )
    _refuse_stream(frame)
    sent, file = send_publication(frame.sparkSession, home, send=send)
    work = RowAudit(decided_at, fields, basis)
    columns = _arrow_columns(frame)

    def count(database: Database, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        yield work.count(database, rows, partition << 33)

    with _open_copy(sent, file) as database:
        new = work.new_columns(database, columns)
        counted = frame.mapInArrow(_task(sent, count), _schema(list(PART))).collect()
        parts = [row.asDict() for row in counted]
        summary = work.merge(database, columns, parts)
    return FrameAudit(summary, _map_rows(frame, sent, work.judge, new))


def read(
    spark: "SparkSession",
    table: str,
    lake: str | Path | Lake,
    *,
    as_of: datetime | None = None,
    publication: LakePublication | None = None,
    row_filter: Any = None,
    columns: Sequence[str] | None = None,
) -> "DataFrame":
    """Return an Iceberg table of one publication as a Spark frame, with the rows of `Lake.read`.

    No jar is needed: each task reads one data file by pyiceberg, with the S3 access of its own
    environment. The address of the catalog does not leave this process.

    Args:
        lake: a `Lake`, or what `open_lake` takes.
        as_of, publication, row_filter: as in `Lake.read`.
        columns: the columns that are read; None reads all. Spark does not tell a Python source
            which columns a query uses. Conditions of a query skip files if
            `spark.sql.python.filterPushdown.enabled` is true.

    Raises: as `Lake.read` and `open_lake`.
    """
    from almanac.cluster.iceberg_source import make_source, pin_scan, read_arrow_schema

    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    is_derived = table == VERSIONS
    if is_derived:
        opened.refuse_partial_histories(row_filter)
    wanted = ("*",) if columns is None else tuple(columns)
    if columns is not None and is_derived:
        keys = {"event_id", "version", "known_from"}
        wanted = tuple({*columns, *keys} - {"known_to", "first_seen_at"})
    scan = opened.scan(
        table, as_of=as_of, publication=publication, row_filter=row_filter, columns=wanted
    )
    takes_filters = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
    arrow = read_arrow_schema(scan)
    name = f"almanac_{table}_{scan.snapshot_id}"
    pinned = pin_scan(scan, opened.table(table).metadata_location)
    source = make_source(name, pinned, arrow, _schema(arrow), takes_filters=takes_filters)
    spark.dataSource.register(source)
    frame = spark.read.format(name).load()
    if is_derived:
        statement = versions_statement(as_of).replace("FROM rows", "FROM {rows}")
        frame = spark.sql(statement, rows=frame)
    return frame if columns is None else frame.select(*map(_quoted, columns))


_Work = Callable[[Database, pa.RecordBatchReader], Iterator[pa.RecordBatch]]


def _join_rows(
    frame: "DataFrame", home: str | Path | Database, options: JoinOptions, *, send: bool
) -> "DataFrame":
    _refuse_stream(frame)
    sent, file = send_publication(frame.sparkSession, home, send=send)
    with _open_copy(sent, file) as database:
        # The columns first: a missing one is an error of Almanac, not of Spark.
        empty = prepare_join(database, options, [])
        found = empty.schema(database, _arrow_columns(frame))
        texts, last_us = _read_keys(frame, options)
        join = prepare_join(database, options, texts, last_us)
    new = list(found)[len(frame.columns) :]
    return _map_rows(frame, sent, join.join, new)


def _read_keys(frame: "DataFrame", options: JoinOptions) -> tuple[list[str | None], int | None]:
    """Return the distinct texts of the column of coins, and the latest timestamp, in one job."""
    from pyspark.sql import functions as f

    kinds = dict(frame.dtypes)
    if kinds[options.coin] != "string":
        return [], None  # The error comes from the rows.
    is_point = kinds[options.ts] == "timestamp"
    latest = f.max(f.unix_micros(frame[_quoted(options.ts)])) if is_point else f.lit(None)
    keys = frame.groupBy(f.col(_quoted(options.coin)).alias("text")).agg(latest.alias("latest"))
    rows = keys.limit(_COINS_MAX + 1).collect()
    if len(rows) > _COINS_MAX:
        raise InvalidArgument(
            f"coin={options.coin!r} has more than {_COINS_MAX:,} distinct texts; expected slugs, "
            "tickers, names or pairs. No row was joined."
        )
    points = [row["latest"] for row in rows if row["latest"] is not None]
    return [row["text"] for row in rows], max(points, default=None)


def _map_rows(frame: "DataFrame", sent: SentFile, work: _Work, new: list[pa.Field]) -> "DataFrame":
    """Run work on the rows of each partition; new columns follow its columns."""
    return frame.mapInArrow(_task(sent, work), _schema(new, frame.schema.fields))


def _task(
    sent: SentFile, work: _Work
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that does the work; an empty partition yields nothing."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is not None:
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
            yield from work(sent.open(), rows)

    return run


def _schema(new: Iterable[pa.Field], given: Iterable[Any] = ()) -> "StructType":
    from pyspark.sql.types import StructType

    schema = StructType(list(given))
    for field in new:
        schema = schema.add(field.name, _spark_type(field.type))
    return schema


def _refuse_stream(frame: "DataFrame") -> None:
    if frame.isStreaming:
        raise InvalidArgument(
            "the frame is a stream, and its coins can't be read before it ends. Nothing was "
            "computed. Use writeStream.foreachBatch, and give each batch."
        )


def _arrow_columns(frame: "DataFrame") -> dict[str, pa.DataType]:
    """Return the columns of a frame; types that no rule reads are left open."""
    return {name: _GIVEN.get(kind, pa.null()) for name, kind in frame.dtypes}


def _spark_type(kind: pa.DataType) -> "DataType":
    """Return the type of a column that Almanac adds."""
    from pyspark.sql import types

    if pa.types.is_list(kind):
        return types.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return _schema(kind)
    return next(
        made()
        for is_kind, made in (
            (pa.types.is_timestamp, types.TimestampType),
            (pa.types.is_boolean, types.BooleanType),
            (pa.types.is_int32, types.IntegerType),
            (pa.types.is_integer, types.LongType),
            (pa.types.is_floating, types.DoubleType),
            (pa.types.is_string, types.StringType),
            (pa.types.is_binary, types.BinaryType),
            (pa.types.is_date, types.DateType),
        )
        if is_kind(kind)
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def send_publication(
    spark: "SparkSession", home: str | Path | Database, *, send: bool = True
) -> tuple[SentFile, Path]:
    """Pin the newest publication and send it to the executors; return it and the driver's file.

    Raises:
        WarehouseError: there is no published file, or it can't be copied.
    """
    publication, copy = pin_publication(home)
    if not send:
        file = home.path if isinstance(home, Database) else find_file(home)
        return SentFile(publication, file.absolute()), copy
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(str(copy), file=True)
    else:
        spark.sparkContext.addFile(str(copy))  # A context that has it ignores it.
    return SentFile(publication, None), copy


def _open_copy(sent: SentFile, file: Path) -> Database:
    found = sent.publication
    options: dict[str, Any] = {"tz": found.tz, "coins_are": found.coins_are}
    return open_database(file, follow=False, clock=lambda: found.now, **options)
