"""Reads and writes rows in batches: Parquet, CSV, Arrow readers and datasets."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from almanac.core.errors import InvalidArgument
from almanac.core.files import replace_file
from almanac.user_files import PARQUET, TEXT, CsvFile, local_path, open_parquet

SLICE_ROWS: Final = 1_000_000
_WILDCARDS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that are read once, in order.

    Attributes:
        schema: the names and types of the columns.
        rows: how many rows there are; None if only reading them tells.
        where: the source in messages, such as a path.
        read: returns the batches, with these columns.
    """

    schema: pa.Schema
    rows: int | None
    where: str
    read: Callable[[list[str]], Iterable[pa.RecordBatch | pa.Table]]

    def slices(self, columns: list[str], rows: int = SLICE_ROWS) -> Iterator[pa.Table]:
        """Yield tables of `rows` rows, the last one shorter; one without rows if there are none."""
        try:
            schema = pa.schema([self.schema.field(name) for name in columns])
            yield from regroup(self.read(columns), schema, rows)
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgument(f"{self.where} can't be read: {error}") from error


def count_rows(
    tables: Iterable[pa.Table], rows: int | None, report: Callable[[str], None] | None
) -> Iterator[pa.Table]:
    """Yield tables, and report after each how many of all rows are done."""
    began, done = time.monotonic(), 0
    for table in tables:
        done += table.num_rows
        if report is not None:
            rate = done / max(time.monotonic() - began, 1e-6)
            total = "" if rows is None else f" of {rows:,}"
            report(f"{done:,}{total} rows, {rate:,.0f} a second")
        yield table


def open_stream(source: Any, argument: str = "signals") -> Stream | None:
    """Return the rows of an Arrow reader or dataset, or of a path; None for another.

    A path is a Parquet or CSV file, a folder of Parquet files, or a pattern such as
    `bars/*.parquet`. `argument` names the source in messages.
    """
    try:
        if isinstance(source, (str, Path)):
            return _of_path(local_path(source, argument))
        kind = type(source).__name__
        if isinstance(source, pa.RecordBatchReader):
            return Stream(source.schema, None, "the reader", lambda names: _selected(source, names))
        if isinstance(source, pa.RecordBatch):
            return stream_table(pa.Table.from_batches([source]))
        if kind == "ParquetFile" and hasattr(source, "iter_batches"):
            return _parquet_file(source, "the Parquet file")
        if hasattr(source, "scanner") and hasattr(source, "get_fragments"):
            return _dataset(source, "the dataset")
    except (pa.ArrowException, OSError) as error:
        where = source if isinstance(source, (str, Path)) else f"the {type(source).__name__}"
        raise InvalidArgument(f"{where} can't be read: {error}") from error
    return None


def stream_table(table: pa.Table) -> Stream:
    """Return the rows of a table in memory."""
    return Stream(table.schema, table.num_rows, "the frame", lambda names: [table.select(names)])


def check_target(target: str | Path, source: Any) -> Path:
    """Return the path of a Parquet file to write."""
    path = local_path(target, "to")
    if path.suffix.lower() not in PARQUET:
        raise InvalidArgument(f"to={str(target)!r}: expected a path that ends in .parquet")
    if path.is_dir() or not path.parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InvalidArgument(f"to={str(target)!r}: {what}")
    if isinstance(source, (str, Path)) and path.exists():
        given = Path(source).expanduser()
        if given.exists() and path.samefile(given):
            raise InvalidArgument(f"to={str(target)!r} is the file that is read; name another")
    return path


def write_parquet(tables: Iterable[pa.Table], schema: pa.Schema, target: Path) -> int:
    """Write a Parquet file with a row group for each table; return how many rows.

    It has its name only once it is complete, and then replaces a file of this name.
    """
    rows = 0
    try:
        with replace_file(target) as staged, pq.ParquetWriter(staged, schema) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
    except pa.ArrowException as error:
        raise InvalidArgument(f"{target} was not written: {error}") from error
    return rows


def regroup(
    batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, rows: int
) -> Iterator[pa.Table]:
    """Yield the rows of batches of any size as tables of `rows` rows; the last may be shorter.

    Without any row it yields one table of `schema`.
    """
    held: list[pa.Table] = []
    count, is_first = 0, True
    for batch in batches:
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        while table.num_rows:
            taken = table.slice(0, rows - count)
            held.append(taken)
            count += taken.num_rows
            table = table.slice(taken.num_rows)
            if count == rows:
                yield pa.concat_tables(held)
                held, count, is_first = [], 0, False
    if held:
        yield pa.concat_tables(held)
    elif is_first:
        yield pa.Table.from_batches([], schema)


def _of_path(path: Path) -> Stream | None:
    if path.name.lower().endswith(TEXT) and not _WILDCARDS & set(str(path)):
        return _csv(path)
    if path.is_file():
        if path.suffix.lower() not in PARQUET:
            return None
        return _parquet_file(open_parquet(path), str(path))
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.suffix.lower() in PARQUET]
    elif _WILDCARDS & set(str(path)):
        root = Path(path.anchor)
        files = [file for file in root.glob(str(path.relative_to(root))) if file.is_file()]
    else:
        raise InvalidArgument(f"there is no file {path}")
    if not files:
        raise InvalidArgument(f"{path}: no Parquet file is there")
    if others := [file for file in files if file.suffix.lower() not in PARQUET]:
        raise InvalidArgument(
            f"{path} also matches {others[0]}; expected only Parquet files, such as bars/*.parquet"
        )
    # One file may lack values, and so the type of a column, that another has.
    names = [str(file) for file in sorted(files)]
    schema = pa.unify_schemas(
        [open_parquet(Path(name)).schema_arrow for name in names], promote_options="permissive"
    )
    base = str(path) if path.is_dir() else None
    partitions = ds.partitioning(flavor="hive")
    found = ds.dataset(names, partitioning=partitions, partition_base_dir=base)
    for field in found.schema:
        if field.name not in schema.names:
            schema = schema.append(field)
    return _dataset(found.replace_schema(schema), str(path))


def _parquet_file(file: Any, where: str) -> Stream:
    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        # Arrow holds the bytes of all row groups that one call reads.
        for number in range(file.metadata.num_row_groups):
            yield from file.iter_batches(SLICE_ROWS, row_groups=[number], columns=names)

    return Stream(file.schema_arrow, file.metadata.num_rows, where, read)


def _csv(path: Path) -> Stream:
    """Return the rows of a CSV as texts; an empty text is NULL."""
    file = CsvFile(path)
    schema = pa.schema([(name, pa.string()) for name in file.names])
    nothing = pa.scalar(None, pa.string())

    def refuse(number: int, why: str) -> None:
        raise InvalidArgument(f"{path}: record {number} can't be read: {why}")

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in file.batches(names, refuse):
            columns = [pc.if_else(pc.equal(texts, ""), nothing, texts) for texts in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, names)

    return Stream(schema, None, str(path), read)


def _dataset(dataset: Any, where: str) -> Stream:
    def read(names: list[str]) -> Any:
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        if isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat):
            # Else the bytes of a whole file are held.
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(pre_buffer=False)
        return dataset.scanner(columns=names, batch_size=SLICE_ROWS // 8, **options).to_batches()

    return Stream(dataset.schema, dataset.count_rows(), where, read)


def _selected(reader: pa.RecordBatchReader, names: list[str]) -> Iterator[pa.RecordBatch]:
    return (batch.select(names) for batch in reader)
