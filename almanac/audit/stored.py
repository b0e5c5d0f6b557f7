"""Rows of an answer that may be more than memory holds.

Belongs here: keeping them in memory or in a temporary Parquet file, counting, reading them back.
Does not: what they mean (judge, result).
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Final, Self

from almanac.errors import WarehouseError
from almanac.forms.preview import FIRST, LAST
from almanac.paths import local_path
from almanac.reading.temporary import own_folder
from almanac.results import Result
from almanac.streams import scan_options, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

HELD_BYTES: Final = 200_000_000
_BATCH_ROWS: Final = 131_072


class RowStore:
    """Takes tables of one schema, and counts their rows by the columns `keys`.

    Rows above `held_bytes` go to a Parquet file of this process. It has no name any more once this
    is left, and is gone with the last `StoredRows` that reads it.
    """

    def __init__(self, keys: Sequence[str], held_bytes: int = HELD_BYTES) -> None:
        self._keys = list(keys)
        self._held_max = held_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._schema: Any = None
        self._writer: Any = None
        self.path: Path | None = None
        self.counts: Counter[tuple[str, ...]] = Counter()

    def append(self, table: "pa.Table") -> None:
        """Add rows.

        Raises:
            WarehouseError: the disk of the temporary folder is full.
        """
        self._schema = self._schema or table.schema
        for row in table.group_by(self._keys).aggregate([([], "count_all")]).to_pylist():
            self.counts[tuple(row[key] for key in self._keys)] += row["count_all"]
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes > self._held_max or self._writer is not None:
            self._spill()

    def finish(self) -> "StoredRows":
        """Return the rows. Nothing can be added after this."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        if self._writer is None:
            source = ds.dataset(pa.concat_tables(self._held))
        else:
            self._writer.close()
            form = ds.ParquetFileFormat()
            fragment = form.make_fragment(pa.OSFile(str(self.path)))
            source = ds.FileSystemDataset([fragment], self._schema, form)
        return StoredRows(source, self._keys, self.counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _spill(self) -> None:
        import pyarrow.parquet as pq

        try:
            if self._writer is None:
                descriptor, name = mkstemp(prefix="audit-", suffix=".parquet", dir=own_folder())
                os.close(descriptor)
                self.path = Path(name)
                self._writer = pq.ParquetWriter(name, self._schema, compression="zstd")
            for table in self._held:
                self._writer.write_table(table, row_group_size=_BATCH_ROWS)
        except OSError as error:
            raise WarehouseError(
                f"the findings can't be stored: {error}. An audit of many rows needs about 35 "
                "bytes a row in the temporary folder; name a larger one in TMPDIR."
            ) from error
        self._held, self._held_bytes = [], 0


class StoredRows(Result):
    """A Result that is read when it is used. Its counts, and `head`, do not read all rows.

    Attributes:
        source: the pyarrow dataset that holds the rows.
    """

    def __init__(
        self,
        source: Any,
        keys: list[str],
        counts: "Counter[tuple[str, ...]]",
        verdicts: frozenset[str] | None = None,
    ) -> None:
        self.source = source
        self._keys = keys
        self._counts = counts
        self._verdicts = verdicts

    @property
    def columns(self) -> list[str]:
        return list(self.source.schema.names)

    @cached_property
    def _table(self) -> Any:
        return self.source.to_table(filter=self._filter)

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def counts(self) -> "Counter[tuple[str, ...]]":
        """How many rows there are, by the values of the columns that were counted."""
        place, verdicts = self._keys.index("verdict"), self._verdicts
        return Counter(
            {
                key: count
                for key, count in self._counts.items()
                if verdicts is None or key[place] in verdicts
            }
        )

    def of(self, verdicts: Iterable[str]) -> Self:
        """Return the rows with one of these verdicts."""
        return type(self)(self.source, self._keys, self._counts, frozenset(verdicts))

    def head(self, n: int = 5) -> Result:
        """Return the first `n` rows; of a negative `n`, all but the last `-n`."""
        if n < 0:
            return super().head(n)
        if not n or not len(self):
            return Result(self.source.schema.empty_table())
        return Result(self.source.head(n, filter=self._filter, **self._options))

    def tail(self, n: int = 5) -> Result:
        """Return the last `n` rows; of a negative `n`, all but the first `-n`."""
        import pyarrow as pa

        if n < 0:
            return super().tail(n)
        last = self.source.schema.empty_table()
        for batch in self.reader():
            table = pa.concat_tables([last, pa.Table.from_batches([batch])])
            last = table.slice(max(0, table.num_rows - n))
        return Result(last)

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows to a Parquet file. A complete file replaces an existing one.

        Raises:
            InvalidArgument: `path` is not a path.
            OSError: the file can't be written.
        """
        import pyarrow as pa

        tables = (pa.Table.from_batches([batch]) for batch in self.reader())
        write_parquet(tables, self.source.schema, local_path(path, "path"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a PyCapsule of an Arrow stream."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> "pa.RecordBatchReader":
        """Return the rows as a pyarrow RecordBatchReader, which holds few of them in memory."""
        return self.source.scanner(
            filter=self._filter, **scan_options(self.source, _BATCH_ROWS)
        ).to_reader()

    def _shown(self) -> list[tuple[Any, ...]]:
        rows = self.head(FIRST + LAST).rows()
        if len(self) > FIRST + LAST:
            rows = [*rows[:FIRST], *self.tail(LAST).rows()]
        return [tuple(row.values()) for row in rows]

    @property
    def _options(self) -> dict[str, Any]:
        return scan_options(self.source, _BATCH_ROWS)

    @property
    def _filter(self) -> Any:
        import pyarrow.compute as pc

        if self._verdicts is None:
            return None
        return pc.field("verdict").isin(sorted(self._verdicts))
