"""A Python data source of Spark over an Iceberg table; it needs no jar.

The plan has the metadata of one snapshot, never the address of the catalog, whose password Spark
would show in plans and event logs. Executors open the files as their environment says. The data
files stay until the snapshot expires, whatever is committed meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyiceberg.table import DataScan

_PUBLIC: Final = ("s3.endpoint", "s3.region", "s3.force-virtual-addressing", "py-io-impl")
"""Properties of pyiceberg that executors need, without any secret."""
_NAMES_MAX: Final = 1_000
_COMPARED: Final[dict[type, Callable[..., Any]]] = {
    spark.EqualTo: ice.EqualTo,
    spark.GreaterThan: ice.GreaterThan,
    spark.GreaterThanOrEqual: ice.GreaterThanOrEqual,
    spark.LessThan: ice.LessThan,
    spark.LessThanOrEqual: ice.LessThanOrEqual,
    spark.StringStartsWith: ice.StartsWith,
}


@dataclass(frozen=True, slots=True)
class PinnedScan:
    """A scan of one snapshot, without secrets, so that it can be sent to executors.

    Attributes:
        location: of the table's metadata file, which may be gone by now.
        metadata: of the table, without its other snapshots.
        condition: rows that it answers; files that have none are not read.
    """

    location: str
    metadata: TableMetadata
    snapshot_id: int
    columns: tuple[str, ...]
    condition: Any
    properties: dict[str, str]

    def open(self) -> "DataScan":
        """Return the scan of pyiceberg."""
        table = StaticTable(
            identifier=("almanac", self.location),
            metadata=self.metadata,
            metadata_location=self.location,
            io=load_file_io(self.properties, self.location),
            catalog=NoopCatalog("almanac"),
        )
        return table.scan(self.condition, self.columns, snapshot_id=self.snapshot_id)


def pin_scan(scan: "DataScan", location: str) -> PinnedScan:
    """Return a scan for executors, without the secrets of the catalog."""
    snapshot = scan.snapshot()
    assert snapshot is not None
    only = {
        "snapshots": [snapshot],
        "current_snapshot_id": snapshot.snapshot_id,
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
    }
    metadata = scan.table_metadata.model_copy(update=only)
    public = {name: scan.io.properties[name] for name in _PUBLIC if name in scan.io.properties}
    columns = tuple(scan.selected_fields)
    return PinnedScan(location, metadata, snapshot.snapshot_id, columns, scan.row_filter, public)


def read_arrow_schema(scan: "DataScan") -> pa.Schema:
    """Return the columns of a scan, with the types that Spark takes."""
    found = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in found])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


class FilePartition(spark.InputPartition):  # type: ignore[misc]
    """A data file to read, with the deleted rows and the condition that its rows must meet."""

    def __init__(self, task: FileScanTask) -> None:
        super().__init__(None)
        self.task = task


class IcebergReader(spark.DataSourceReader):  # type: ignore[misc]
    """Reads a pinned scan; a task reads one data file."""

    def __init__(self, scan: PinnedScan, schema: pa.Schema) -> None:
        self.scan = scan
        self.schema = schema

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Return the files that may have rows."""
        return [FilePartition(task) for task in self.scan.open().plan_files()]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        if not isinstance(partition, FilePartition):
            return  # Spark adds an empty partition to a plan without files.
        scan = self.scan.open()
        found = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
        for batch in found.to_record_batches([partition.task]):
            yield pa.RecordBatch.from_arrays(
                [
                    column.cast(field.type)
                    for field, column in zip(self.schema, batch.columns, strict=True)
                ],
                schema=self.schema,
            )


class FilteringReader(IcebergReader):
    """Also takes the conditions of a query, so that files are skipped."""

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        """Take the conditions that Iceberg has; Spark still checks each row."""
        conditions = [found for given in filters if (found := _condition(given)) is not None]
        condition = reduce(ice.And, conditions, self.scan.condition)
        self.scan = replace(self.scan, condition=condition)
        return filters


def _condition(given: spark.Filter) -> Any:
    """Return a condition of Iceberg; None if it has none like it."""
    name = ".".join(getattr(given, "attribute", ()))
    value = getattr(given, "value", None)
    if isinstance(given, spark.In):
        values = {_literal(value) for value in given.value if value is not None}
        return ice.In(name, values) if values and len(values) <= _NAMES_MAX else None
    if isinstance(given, spark.IsNotNull):
        return ice.NotNull(name)
    if isinstance(given, spark.IsNull):
        return ice.IsNull(name)
    compared = _COMPARED.get(type(given))
    if compared is None or not isinstance(value, str | int | float | bool | datetime | date):
        return None
    return compared(name, _literal(value))


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else value


def make_source(
    name: str, scan: PinnedScan, arrow: pa.Schema, columns: StructType, *, takes_filters: bool
) -> type[spark.DataSource]:
    """Return a data source for one scan. Spark sends the class to its planner with the scan."""
    source_name, reader = name, FilteringReader if takes_filters else IcebergReader

    class IcebergSource(spark.DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> spark.DataSourceReader:
            return reader(scan, arrow)

    return IcebergSource
