"""Joins on Spark frames: each executor runs this package over the same publication.

No rule is written for Spark: a task gives its rows to `attach_known` of a `Database`. The driver
sends the published file to the executors once per publication. PySpark is the user's.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from almanac.database import Database, open_database
from almanac.errors import WarehouseError
from almanac.events import Names
from almanac.instants import Duration
from almanac.joins import Unknown
from almanac.reader import find_file
from almanac.reading.query_limits import QueryLimits
from almanac.reading.temporary import own_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LIMITS: Final = QueryLimits(memory_bytes=500_000_000, threads=1)
"""Of each Python process of an executor, which runs one task at a time."""
_KINDS: Final = (
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "long"),
    (pa.types.is_floating, "double"),
)


@dataclass(frozen=True, slots=True)
class SentPublication:
    """A published file that executors have: its name among Spark's files, and the zone."""

    name: str
    tz: str

    def open(self) -> Database:
        """Return the database of this process; one is kept open.

        Raises:
            WarehouseError: the file did not reach this executor.
        """
        return _open_sent(self.name, self.tz)


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
) -> "DataFrame":
    """Return a Spark frame with the next event of each coin, as `Database.attach_known`.

    The columns and rules are the same. The publication is the one that is the newest now.

    Raises: as `Database.attach_known`; an unknown coin or a future timestamp when the frame is
        computed.
    """
    options: dict[str, Any] = {
        "ts": ts,
        "coin": coin,
        "horizon": horizon,
        "prefix": prefix,
        "categories": categories,
        "min_impact": min_impact,
        "unknown": unknown,
    }

    def join(database: Database, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        found: pa.RecordBatchReader = database.attach_known(rows, **options)
        return found

    return _map_rows(frame, home, join)


_Join = Callable[[Database, pa.RecordBatchReader], pa.RecordBatchReader]


def _map_rows(frame: "DataFrame", home: str | Path | Database, join: _Join) -> "DataFrame":
    """Run a join on the rows of each partition."""
    from pyspark.sql.types import StructType

    tz = str(home._reader.tz) if isinstance(home, Database) else "UTC"
    file = home.path if isinstance(home, Database) else find_file(home)
    sent = send_publication(frame.sparkSession, file, tz)
    given = frame.limit(0).toArrow().schema
    with open_database(_pinned_file(sent.name), tz=tz) as database:
        found = join(database, pa.RecordBatchReader.from_batches(given, [])).schema
    new = [field for field in found if field.name not in given.names]
    schema = StructType(list(frame.schema.fields))
    for field in new:
        schema = schema.add(field.name, _type_name(field.type))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        yield from join(sent.open(), rows)

    return frame.mapInArrow(run, schema)


def _type_name(kind: pa.DataType) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(kind)), "string")


def send_publication(spark: Any, file: Path, tz: str = "UTC") -> SentPublication:
    """Send a published file to the executors of a session.

    Raises:
        WarehouseError: there is no such file, or it can't be copied.
    """
    status = file.stat()
    name = f"almanac-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}.duckdb"
    pinned = _pinned_file(name)
    if not pinned.exists():
        # Copied, since the next publication may write to the file.
        unfinished = pinned.with_suffix(".unfinished")
        try:
            shutil.copyfile(file, unfinished)
        except OSError as error:
            raise WarehouseError(
                f"{file} can't be copied for the executors: {error}. Nothing was computed; TMPDIR "
                "may name a folder with more space."
            ) from error
        unfinished.rename(pinned)
    spark.sparkContext.addFile(str(pinned))  # A context that has it ignores it.
    return SentPublication(name, tz)


def _pinned_file(name: str) -> Path:
    return own_folder() / name


@lru_cache(maxsize=1)
def _open_sent(name: str, tz: str) -> Database:
    from pyspark import SparkFiles

    file = Path(SparkFiles.get(name))
    if not file.is_file():
        raise WarehouseError(
            f"this executor has no file {name}; the driver sends it with SparkContext.addFile"
        )
    return open_database(file, tz=tz, follow=False, limits=_LIMITS)
